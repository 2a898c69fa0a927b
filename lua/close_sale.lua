-- close_sale: ends a sale, so that it takes no more claims.
--
-- KEYS  1 current   the text "L:g" of the sale's current generation
--       2 state     hash: the sale's counters and clock in this generation
--       3 outbox    stream: at least the events that the log's readers have not applied yet
-- ARGV  1 generation   the caller's "L:g"
--       2 applied      the last seq of this generation that the caller's ledger has applied
--       3 deadline_ms  from then on, in Redis' time, this call does nothing
--       4 prefix       the event's fields that the caller knows, encoded
-- Reply [status, redis_ms, ...], the first of these that holds:
--       stale | missing | behind | late
--       closed                   closed by an earlier call
--       busy                     `window` events are not applied yet
--       closed_now seq event
-- Invariant: the event is written once, whatever the number of calls. A sale whose time is over
-- refuses claims by itself; this writes its event all the same. All checks come before the
-- first write, and after that write no other can fail.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local current = redis.call('GET', KEYS[1])
if current and current ~= ARGV[1] then return { 'stale', now } end
if not current then return { 'missing', now } end

local state = redis.call('HMGET', KEYS[2], 'marker', 'st', 'seq', 'time', 'applied', 'window',
  'head')
for i = 1, 7 do
  if not state[i] then return { 'missing', now } end
end
local head = state[7]
if #head ~= 20 then return { 'missing', now } end

local seq, done = tonumber(state[3]), tonumber(state[5])
local applied = tonumber(ARGV[2])
now = math.max(now, tonumber(state[4]))
if applied > seq then return { 'behind', now } end
if now >= tonumber(ARGV[3]) then return { 'late', now } end
if state[2] ~= 'open' then return { 'closed', now } end
if seq - math.max(applied, done) >= tonumber(state[6]) then return { 'busy', now } end

seq = seq + 1
-- The tags are those of seq, time_ms and prev in proto/dropgate.proto.
local event = ARGV[4] .. '\65' .. struct.pack('<I8', seq) .. '\81' .. struct.pack('<I8', now)
  .. '\90\20' .. head
local hex = redis.sha1hex(event)
local next_head = struct.pack('>I4I4I4I4I4',
  tonumber(string.sub(hex, 1, 8), 16), tonumber(string.sub(hex, 9, 16), 16),
  tonumber(string.sub(hex, 17, 24), 16), tonumber(string.sub(hex, 25, 32), 16),
  tonumber(string.sub(hex, 33, 40), 16))

-- First the one write that can still be refused (another type, or an id that is not new).
redis.call('XADD', KEYS[3], string.format('%.0f-0', seq), 'e', event)
redis.call('HSET', KEYS[2], 'st', 'closed', 'seq', seq, 'head', next_head, 'time', now,
  'applied', math.max(applied, done))
if applied > done then
  redis.call('XTRIM', KEYS[3], 'MINID', '~', string.format('%.0f-0', applied + 1))
end
return { 'closed_now', now, seq, event }
