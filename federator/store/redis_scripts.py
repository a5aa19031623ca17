"""The scripts that Redis runs in one step: each reads, decides and writes, or changes nothing.

Keys: the log, a list of records, each behind its checksum in 4 bytes; the head, a hash of

- ``epoch``: of the last term; who appends must name it,
- ``base``, ``next``: positions of the first record in the list, and of the one that comes next,
- ``crc``: checksum of the last record,
- ``acked``: how far the log was acknowledged, some moments ago;

and the lease, a string that names its holder and ends by itself. An answer begins with a word:
``ok``, ``held`` (by whom), ``epoch`` (of who leads now), ``broken`` (what the head says), or
``aside`` (the new list is not whole; nothing was changed).
"""

from __future__ import annotations

from typing import Final

_HEAD: Final = """
local log, head, lease = KEYS[1], KEYS[2], KEYS[3]
local h = redis.call('HMGET', head, 'epoch', 'base', 'next', 'crc', 'acked')
local epoch, base, next_ = tonumber(h[1] or 0), tonumber(h[2] or 1), tonumber(h[3] or 1)
local crc, acked = tonumber(h[4] or 0), tonumber(h[5] or 1)
local function text(number) return string.format('%.0f', number) end
local function said(word) return {word, epoch, base, next_, crc, acked} end
local function set(...) redis.call('HSET', head, ...) end
if redis.call('LLEN', log) ~= next_ - base then return said('broken') end
"""

# ARGV: at_least, token, lease in ms
LEAD: Final = (
    _HEAD
    + """
local holder = redis.call('GET', lease)
if holder and holder ~= ARGV[2] then return {'held', holder, next_, acked} end
epoch = math.max(epoch + 1, tonumber(ARGV[1]))
set('epoch', text(epoch), 'base', text(base), 'next', text(next_), 'crc', text(crc),
    'acked', text(acked))
redis.call('SET', lease, ARGV[2], 'PX', ARGV[3])
return said('ok')
"""
)

# ARGV: epoch, acknowledged so far, token, lease in ms
RENEW: Final = (
    _HEAD
    + """
if epoch ~= tonumber(ARGV[1]) then return said('epoch') end
if next_ < tonumber(ARGV[2]) then return said('broken') end
set('acked', ARGV[2])
redis.call('SET', lease, ARGV[3], 'PX', ARGV[4])
return said('ok')
"""
)

# ARGV: epoch, next and crc before, next and crc after, entries
APPEND: Final = (
    _HEAD
    + """
if epoch ~= tonumber(ARGV[1]) then return said('epoch') end
if next_ == tonumber(ARGV[2]) and crc == tonumber(ARGV[3]) then
  for first = 6, #ARGV, 1000 do
    redis.call('RPUSH', log, unpack(ARGV, first, math.min(first + 999, #ARGV)))
  end
elseif next_ ~= tonumber(ARGV[4]) or crc ~= tonumber(ARGV[5]) then
  return said('broken')
end  -- else this is a second try, and the reply to the first was lost
set('next', ARGV[4], 'crc', ARGV[5], 'acked', ARGV[2])  -- also then: WAIT waits for a write
return {'ok'}
"""
)

# KEYS[4]: the new list. ARGV: epoch, next before, next and crc after
COMPACT: Final = (
    _HEAD
    + """
if epoch ~= tonumber(ARGV[1]) then return said('epoch') end
if next_ == tonumber(ARGV[2]) then
  if redis.call('LLEN', KEYS[4]) ~= tonumber(ARGV[3]) - next_ then return said('aside') end
  redis.call('UNLINK', log)
  if redis.call('EXISTS', KEYS[4]) == 1 then
    redis.call('RENAME', KEYS[4], log)
    redis.call('PERSIST', log)
  end
elseif base ~= tonumber(ARGV[2]) or next_ ~= tonumber(ARGV[3]) or crc ~= tonumber(ARGV[4]) then
  return said('broken')
end
set('base', ARGV[2], 'next', ARGV[3], 'crc', ARGV[4], 'acked', ARGV[2])
return {'ok'}
"""
)

# ARGV: token
RELEASE: Final = """
if redis.call('GET', KEYS[3]) == ARGV[1] then redis.call('DEL', KEYS[3]) end
return {'ok'}
"""
