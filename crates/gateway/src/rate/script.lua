-- GCRA, as in rate/mod.rs: KEYS[1] holds the moment at which nothing is owed, in microseconds of this server's clock.
-- ARGV: what a request owes, what may be owed. Returns whether it passes, and what is owed then.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local share, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local owed = math.min(math.max(tonumber(redis.call('GET', KEYS[1]) or 0) - now, 0), most)
if owed + share > most then
  return {0, owed}
end
owed = owed + share
redis.call('SET', KEYS[1], string.format('%.0f', now + owed), 'PX', math.ceil(owed / 1000))
return {1, owed}
