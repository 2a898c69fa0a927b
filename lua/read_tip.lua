-- read_tip: how far a sale has come in Redis, and what the log's readers have not applied yet.
--
-- KEYS  1 current   the text "L:g" of the sale's current generation
--       2 state     hash: the sale's counters and clock in this generation
--       3 outbox    stream: at least the events that the log's readers have not applied yet
-- ARGV  1 generation   the caller's "L:g"
--       2 applied      the last seq of this generation that the caller's ledger has applied
--       3 max          how many events to return at most; the oldest come first
-- Reply [status, redis_ms, ...], the first of these that holds:
--       stale | missing | behind
--       tip seq head applied events   `head` is the SHA-1 of event `seq`; `events` alternates
--                                     seq and event
-- Invariant: `applied` only goes forward, the outbox keeps all that is above it, and `events`
-- holds nothing else. That is all this script changes; called twice it changes nothing.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local current = redis.call('GET', KEYS[1])
if current and current ~= ARGV[1] then return { 'stale', now } end
if not current then return { 'missing', now } end

local state = redis.call('HMGET', KEYS[2], 'marker', 'seq', 'time', 'applied', 'head')
for i = 1, 5 do
  if not state[i] then return { 'missing', now } end
end
local head = state[5]
if #head ~= 20 then return { 'missing', now } end

local seq, done = tonumber(state[2]), tonumber(state[4])
local applied = tonumber(ARGV[2])
now = math.max(now, tonumber(state[3]))
if applied > seq then return { 'behind', now } end

local rest = {}
if tonumber(ARGV[3]) > 0 and seq > math.max(applied, done) then
  rest = redis.call('XRANGE', KEYS[3], string.format('%.0f-0', math.max(applied, done) + 1), '+',
    'COUNT', ARGV[3])
end
local events = {}
for _, entry in ipairs(rest) do
  events[#events + 1] = tonumber(string.match(entry[1], '^%d+'))
  events[#events + 1] = entry[2][2]
end

if applied > done then
  -- The trim first: it is refused when the outbox has another type, and then nothing is written.
  redis.call('XTRIM', KEYS[3], 'MINID', '=', string.format('%.0f-0', applied + 1))
  redis.call('HSET', KEYS[2], 'applied', applied)
  done = applied
end
return { 'tip', now, seq, head, done, events }
