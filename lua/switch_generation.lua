-- switch_generation: makes a generation that has been built the sale's current one.
--
-- KEYS  1 current     the text "L:g" of the sale's current generation
--       2 new_state   hash: the state of the generation that has been built
--       3 new_claims  hash: its claims
-- ARGV  1 old         the "L:g" that the caller takes for current; empty when none
--       2 new         the "L:g" to become current
--       3 seq         the last seq before the new generation, as in its marker
--       4 head        the SHA-1 that its first event will hold, as in its marker
-- Reply [status, redis_ms], the first of these that holds:
--       already      it is current
--       backwards    a later generation of the same log is current, or one of another log that
--                    the caller does not know of
--       not_built    its state is not there, or its marker is another, or claims are missing,
--                    or a recovery has ended it before it was built
--       switched
-- Invariant: within a log, the current generation's number never goes down. It may go up past
-- what the caller takes for current, and it may begin from nothing: a Redis that came back with
-- less than it had is switched forward like any other.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local old, new = ARGV[1], ARGV[2]
local current = redis.call('GET', KEYS[1])
if current == new then return { 'already', now } end
if current then
  local its_log, its_number = string.match(current, '^(%x+):(%d+)$')
  local new_log, new_number = string.match(new, '^(%x+):(%d+)$')
  if its_log ~= new_log then
    if current ~= old then return { 'backwards', now } end
  elseif tonumber(its_number) > tonumber(new_number) then
    return { 'backwards', now }
  end
end

-- The claims are counted here, where nothing can happen in between: a Redis that was demoted and
-- promoted again while they were written still has the scripts, and may have lost some.
local users = redis.call('HLEN', KEYS[3])
if redis.call('HGET', KEYS[2], 'halted') then return { 'not_built', now } end
if redis.call('HGET', KEYS[2], 'marker') ~= ARGV[3] .. ':' .. ARGV[4] .. ':' .. users then
  return { 'not_built', now }
end

redis.call('SET', KEYS[1], new)
return { 'switched', now }
