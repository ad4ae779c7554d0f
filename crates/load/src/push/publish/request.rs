//! One request that publishes: what waits on a connection, written down. Knows neither answers nor when to send it.

use ringmain_wire::h1::Misuse;

use super::Publisher;
use super::exchange::write_head;
use super::line::{Flight, Line};
use crate::limits;
use crate::push::calendar::Mark;
use crate::push::layout::write_name;
use crate::push::plan::Form;
use crate::push::stamp::{self, Stamp};

impl Publisher {
    /// Leaves a request in the scratch, with what waits on a connection, as much as it may hold; that is on its way then. Returns
    /// how much it was.
    pub(super) fn write(&mut self, line: usize) -> Result<usize, Misuse> {
        let publishing = self
            .plan
            .publishing
            .as_ref()
            .expect("there are connections to publish on");
        let (body, plan) = (&mut self.body, &self.plan);
        let Line {
            waiting,
            in_flight,
            requests,
            ..
        } = &mut self.lines[line];
        body.clear();
        let [opening, begin, middle, end, closing]: [&[u8]; 5] = match publishing.form {
            Form::Api => [b"", b"{\"channel\":\"", b"\",\"data\":", b"}", b""],
            Form::Batch(_) => [
                b"{\"parallel\":true,\"commands\":[",
                b"{\"publish\":{\"channel\":\"",
                b"\",\"data\":",
                b"}},",
                b"]}",
            ],
            Form::Lines(_) => [b"", b"", b" ", b"\n", b""],
        };
        let most = match publishing.form {
            Form::Batch(most) | Form::Lines(most) => usize::from(most),
            Form::Api => 1,
        };
        body.extend_from_slice(opening);
        let mut count = 0;
        while count < most && body.len() < limits::REQUEST_BYTES {
            // The one that tries goes alone.
            let next = waiting.pop_front_if(|due| count == 0 || due.number.is_some());
            let Some(due) = next else { break };
            let none = Mark {
                channel: 0,
                sequence: 0,
            };
            let mark = due.number.map_or(none, |number| self.calendar.mark(number));
            body.extend_from_slice(begin);
            write_name(body, &plan.prefix, plan.channels, mark.channel);
            body.extend_from_slice(middle);
            stamp::write(body, self.run, Stamp { mark, due: due.due }, plan.size as usize);
            body.extend_from_slice(end);
            in_flight.push_back(Flight { due, sent: due.due });
            count += 1;
            if due.number.is_none() {
                break;
            }
        }
        requests.push_back(count as u16);
        if !closing.is_empty() {
            // The comma behind the last.
            body.pop();
        }
        body.extend_from_slice(closing);
        self.scratch.clear();
        write_head(&mut self.scratch, publishing, body.len() as u64)?;
        self.scratch.extend_from_slice(&self.body);
        Ok(count)
    }
}
