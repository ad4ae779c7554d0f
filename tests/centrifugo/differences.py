"""What differs between Centrifugo 6.9.1 and Ringmain, and why. A key is the path of an observation and covers all below it."""

STRICT = "Centrifugo disconnects (3501) where Ringmain answers the command with an error: the client goes on."
EPOCH = "Centrifugo tells the epoch with the first publication of a stream; SDKs take it from the answer to subscribe alone."
COUNT = "Ringmain says how many connections a call has reached."

DIFFERENCES = {
    "connecting[4][1]": "An empty message says nothing; Ringmain waits for the next one.",
    "connecting[5][1]": "An empty JSON array says nothing; Ringmain waits for the next one.",
    "commands[0]": STRICT,
    "commands[1]": STRICT,
    "commands[5]": STRICT,
    "commands[12][0][0].error": "Ringmain checks first whether the client may ask at all (103), so that an error tells it nothing of the channel.",
    "publishing[3][0].push.pub.epoch": EPOCH,
    "recovering[7].subscribe.publications[0].epoch": EPOCH,
    "tokens_that_expire[5][0].push.pub.epoch": EPOCH,
    "recovering[2].subscribe.publications[0].epoch": EPOCH,
    "history_pages[3].history.publications[0].epoch": EPOCH,
    "history_pages[5].history.publications[0].epoch": EPOCH,
    "history_pages[7].history.publications[0].epoch": EPOCH,
    "history_pages[11].history.publications[9].epoch": EPOCH,
    "history_pages[13].history.publications[0].epoch": EPOCH,
    "history_pages[25].history.publications[2].epoch": EPOCH,
    "history_pages[31].history.publications[3].epoch": EPOCH,
    "tokens[8].refresh.client": "Ringmain repeats the client's own name in the answer to refresh, as the protocol has it.",
    "tokens[11]": "A token for another user: Centrifugo ends the connection (3500), Ringmain refuses the subscription (103).",
    "programs[9][1][0].result.num_clients": COUNT,
    "programs[10][1][0].result.num_clients": COUNT,
    "programs[11][1][0].result.num_clients": COUNT,
    "programs[12][1][0].result.num_clients": COUNT,
    "batches[2][1][0].replies[1].error.message": "Centrifugo's API says `not found`, its client protocol `method not found`; Ringmain says the latter in both.",
    "batches[3][1][0].replies[0].error.message": "As above.",
    "batches[4][1][0].replies": "Ringmain answers an empty batch with an empty list.",
    "event_streams[1].connect.session": "Centrifugo names a session on transports that take no commands; there is nothing to send it with.",
}
