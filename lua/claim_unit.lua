-- claim_unit: gives one unit of a sale to one user.
--
-- KEYS  1 current   the text "L:g" of the sale's current generation
--       2 state     hash: the sale's counters and clock in this generation
--       3 claims    hash: user -> what they won, entry after entry
--       4 outbox    stream: at least the events that the log's readers have not applied yet
-- ARGV  1 generation   the caller's "L:g"
--       2 applied      the last seq of this generation that the caller's ledger has applied
--       3 deadline_ms  from then on, in Redis' time, this call does nothing
--       4 user
--       5 key          the claim's idempotency key; empty: the user's first claim
--       6 attempt      16 bytes
--       7 prefix       the event's fields that the caller knows, encoded
-- Reply [status, redis_ms, ...], the first of these that holds:
--       stale | missing | behind | late
--       again seq unit attempt   the user has this claim already
--       closed | early opens_ms
--       limit entries            the user has as many claims as they may
--       busy                     `window` events are not applied yet
--       sold_out seq
--       won seq event
-- Invariant: units 1, 2, 3.. go out in the order of seq, each once; every win is in claims and
-- in the outbox, and each event holds the SHA-1 of the one before it. All checks come before
-- the first write, and after that write no other can fail.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local current = redis.call('GET', KEYS[1])
if current and current ~= ARGV[1] then return { 'stale', now } end
if not current then return { 'missing', now } end

local state = redis.call('HMGET', KEYS[2], 'marker', 'st', 'stock', 'limit', 'next', 'seq',
  'time', 'applied', 'window', 'opens', 'closes', 'head')
for i = 1, 12 do
  if not state[i] then return { 'missing', now } end
end
local head = state[12]
if #head ~= 20 then return { 'missing', now } end

local seq, done = tonumber(state[6]), tonumber(state[8])
local applied = tonumber(ARGV[2])
now = math.max(now, tonumber(state[7]))
if applied > seq then return { 'behind', now } end
if now >= tonumber(ARGV[3]) then return { 'late', now } end

local user, key, attempt = ARGV[4], ARGV[5], ARGV[6]
local limit = tonumber(state[4])
local claims, held = redis.call('HGET', KEYS[3], user) or '', 0
local at = 1
while at <= #claims do
  local its_seq, its_unit, its_attempt = struct.unpack('<I8I8c16', claims, at)
  local key_len = string.byte(claims, at + 32)
  if limit == 1 or key == '' or key == string.sub(claims, at + 33, at + 32 + key_len) then
    return { 'again', now, its_seq, its_unit, its_attempt }
  end
  held = held + 1
  at = at + 33 + key_len
end

local opens, closes = tonumber(state[10]), tonumber(state[11])
if state[2] ~= 'open' or (closes > 0 and now >= closes) then return { 'closed', now } end
if now < opens then return { 'early', now, opens } end
if held >= limit then return { 'limit', now, claims } end
if seq - math.max(applied, done) >= tonumber(state[9]) then return { 'busy', now } end
local unit = tonumber(state[5])
if unit > tonumber(state[3]) then return { 'sold_out', now, seq } end

if #attempt ~= 16 or #key > 255 then
  return redis.error_reply('ERR claim_unit: attempt or key has the wrong length')
end
seq = seq + 1
-- The tags are those of seq, unit, time_ms and prev in proto/dropgate.proto.
local event = ARGV[7] .. '\65' .. struct.pack('<I8', seq) .. '\73' .. struct.pack('<I8', unit)
  .. '\81' .. struct.pack('<I8', now) .. '\90\20' .. head
local hex = redis.sha1hex(event)
local next_head = struct.pack('>I4I4I4I4I4',
  tonumber(string.sub(hex, 1, 8), 16), tonumber(string.sub(hex, 9, 16), 16),
  tonumber(string.sub(hex, 17, 24), 16), tonumber(string.sub(hex, 25, 32), 16),
  tonumber(string.sub(hex, 33, 40), 16))
claims = claims .. struct.pack('<I8I8', seq, unit) .. attempt .. string.char(#key) .. key

-- First the one write that can still be refused (another type, or an id that is not new).
redis.call('XADD', KEYS[4], string.format('%.0f-0', seq), 'e', event)
redis.call('HSET', KEYS[3], user, claims)
if applied > done then
  redis.call('HSET', KEYS[2], 'next', unit + 1, 'seq', seq, 'head', next_head, 'time', now,
    'applied', applied)
  -- Whole blocks of the stream only: an exact trim costs a third of a win. read_tip is exact.
  redis.call('XTRIM', KEYS[4], 'MINID', '~', string.format('%.0f-0', applied + 1))
else
  redis.call('HSET', KEYS[2], 'next', unit + 1, 'seq', seq, 'head', next_head, 'time', now)
end
return { 'won', now, seq, event }
