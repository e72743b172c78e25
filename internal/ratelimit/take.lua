-- take judges an ordered list of entries, each against all its limits in one step. An entry is one
-- or more calls that are alike: the same cost, the same counters, the same limits.
--
-- KEYS  the counters, each once, all in one slot
-- ARGV  integers:
--   now     in ms, or -1 for this server's own clock (always -1 outside tests)
--   slack   ms to add to every TTL (0 outside tests)
--   the number of limits, then for each limit
--     algorithm  1 sliding window counter, 2 fixed window, 3 bucket, 4 sliding window log,
--                5 calendar quota
--     units      per window; 0 admits nothing
--     window     in ms; of a quota, the first ms after its period
--     size       the most that one call can take: the burst of a bucket, else units
--     delay      ms that a call may wait for a bucket; of a quota, the first ms of its period
--   then for each entry
--     calls * 128 + n, where n is the number of charges of each of its calls
--     cost of each call, in units; 0 peeks
--     n times: counter * 512 + limit * 2 + shadow, with the counter an index into KEYS and the
--     limit one into the limits, both from 1, and shadow 1 where the limit is not enforced
--
-- Returns a flat list of integers: the time in ms, then for each entry
--   the number of its calls that are admitted; the rest, after them, are refused; or -1, and
--   nothing is charged, if a quota's period does not hold the time
--   n times: the number of calls that the limit would admit by itself, at most all, and the three
--   integers of the counter's state (see algorithms.go) after the entry
--
-- A call is admitted if every enforced limit admits its cost; then each limit that admits it is
-- charged, else none is. Each counter is loaded once and, if anything was charged to it, stored
-- once, with a TTL that ends when its state has nothing more to say.
--
-- A state is stored as one integer where its parts are small, so that Redis keeps it without a
-- string: the low digits hold a and b, the high ones one more than the epoch modulo a number that
-- is far longer than any state lives. Larger states are three integers between colons. A log is
-- binary: its units in 6 bytes, then for each entry its time in 6 and its units in 4.
--
-- All numbers are integers below 2^53, which the doubles of Lua keep exactly.

local SLIDING, FIXED, BUCKET, LOG, CALENDAR = 1, 2, 3, 4, 5
local EXACT = 9007199254740991
local LOG_EXACT = 1024 -- as in slidinglog.go
local PERIOD_MOVES = 93600000 -- as in algorithms.go
local floor, format, sub, find = math.floor, string.format, string.sub, string.find
local pack, unpack_at = struct.pack, struct.unpack
local call = redis.call

local now, slack = ARGV[1] + 0, ARGV[2] + 0
if now < 0 then
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end

local algorithms, units, windows, sizes, delays = {}, {}, {}, {}, {}
local at = 4
for l = 1, ARGV[3] + 0 do
  algorithms[l], units[l], windows[l] = ARGV[at] + 0, ARGV[at + 1] + 0, ARGV[at + 2] + 0
  sizes[l], delays[l] = ARGV[at + 3] + 0, ARGV[at + 4] + 0
  at = at + 5
end

local values = call('MGET', unpack(KEYS))
local epochs, as, bs = {}, {}, {} -- states by counter, rolled to now by the limit in rolled
local rolled = {}
local held = {}                   -- states as loaded, or as charged by another limit: {epoch, a, b}
local charged = {}                -- the limit that a counter was last charged by
local changed = {}                -- whether the rolled state was charged since
local logs, starts = {}, {}       -- of a log: its entries, and where the first in the window begins

-- load returns a stored state, or nothing for a value that this script has not stored: such a
-- counter begins anew, as a deleted one does, instead of failing all calls that travel with it.
-- base is the epoch that a fresh state has.
local function load(value, algorithm, base)
  if find(value, ':', 1, true) then
    local epoch, a, b = string.match(value, '^(%d+):(-?%d+):(%d+)$')
    if not epoch then return end
    return epoch + 0, a + 0, b + 0
  end
  if not find(value, '^%d+$') or #value < (algorithm == SLIDING and 13 or 10) or #value > 19 then return end
  local slot, wrap, a, b
  if algorithm == SLIDING then
    slot, wrap, a, b = sub(value, 1, -13) - 1, 9000000, sub(value, -12, -7) + 0, sub(value, -6) + 0
  else
    slot, wrap, a, b = sub(value, 1, -10) - 1, 9000000000, sub(value, -9) + 0, 0
  end
  -- the epoch nearest to base of those that are stored as this slot
  local behind = (base - slot) % wrap
  if behind > wrap / 2 then behind = behind - wrap end
  return base - behind, a, b
end

-- roll_log drops what has left the window.
local function roll_log(c, l)
  if not logs[c] then
    local value = values[c]
    if value and #value > 6 and #value % 10 == 6 then
      as[c], logs[c], starts[c] = unpack_at('>I6', value), value, 7
    else
      as[c], logs[c], starts[c] = 0, '', 1
    end
  end
  local log, start, left, oldest = logs[c], starts[c], now - windows[l], 0
  while start < #log do
    local time, taken = unpack_at('>I6I4', log, start)
    if time > left then
      oldest = time
      break
    end
    as[c] = as[c] - taken
    start = start + 10
  end
  starts[c], epochs[c], bs[c], rolled[c] = start, oldest, 0, l
end

-- add_log adds units to a log at now.
local function add_log(c, l, taken)
  local log, time = sub(logs[c], starts[c]), now
  if units[l] > LOG_EXACT then
    local slot = floor((windows[l] + LOG_EXACT - 1) / LOG_EXACT)
    time = (floor(now / slot) + 1) * slot - 1
  end
  if #log > 0 then
    local newest, before = unpack_at('>I6I4', log, #log - 9)
    if newest >= time then
      log, time, taken = sub(log, 1, -11), newest, taken + before
    end
  end
  log = log .. pack('>I6I4', time, taken)
  if epochs[c] == 0 then epochs[c] = time end
  logs[c], starts[c] = log, 1
end

-- fits_at is the time from which a cost fits into a log that refuses it.
local function fits_at(c, l, cost)
  local log, start, excess = logs[c], starts[c], as[c] + cost - units[l]
  while start < #log do
    local time, taken = unpack_at('>I6I4', log, start)
    excess = excess - taken
    if excess <= 0 then return time + windows[l] end
    start = start + 10
  end
  return 0
end

-- roll brings a counter's state to now by a limit. Rolling is no charge: where another limit has
-- rolled it before (one that was edited since), it starts again from the state that is held.
local function roll(c, l)
  local algorithm, window = algorithms[l], windows[l]
  if algorithm == LOG then return roll_log(c, l) end
  local base = now
  if algorithm == CALENDAR then
    base = 0
  elseif algorithm ~= BUCKET then
    base = floor(now / window)
  end
  local epoch, a, b
  if not rolled[c] then
    local value = values[c]
    if value then epoch, a, b = load(value, algorithm, base) end
    if epoch then
      if algorithm == BUCKET then held[c] = { epoch, a, b } end
    else
      epoch, a, b = base, algorithm == BUCKET and sizes[l] * window or 0, 0
    end
  elseif algorithm ~= BUCKET or changed[c] then
    epoch, a, b = epochs[c], as[c], bs[c]
    held[c], changed[c] = { epoch, a, b }, nil
  elseif held[c] then
    epoch, a, b = held[c][1], held[c][2], held[c][3]
  else
    epoch, a, b = base, sizes[l] * window, 0
  end
  if algorithm == BUCKET then
    local passed, full = now - epoch, sizes[l] * window
    if passed < 0 then passed = 0 end
    if passed * units[l] >= full - a then a = full else a = a + passed * units[l] end
    if now > epoch then epoch = now end
  elseif base > epoch then
    if algorithm == SLIDING and base == epoch + 1 then a = b else a = 0 end
    epoch, b = base, 0
  end
  epochs[c], as[c], bs[c], rolled[c] = epoch, a, b, l
end

-- room is the greatest cost that a limit admits now; below 0 it does not even admit a peek.
local function room(c, l)
  local limit = units[l]
  if limit == 0 then return -1 end
  if rolled[c] ~= l then roll(c, l) end
  local algorithm, a = algorithms[l], as[c]
  if algorithm == BUCKET then return floor((a + delays[l] * limit) / windows[l]) end
  if algorithm ~= SLIDING then return limit - a end
  if a == 0 then return limit - bs[c] end
  -- limit - current - ceil(previous * (window - elapsed) / window), in the unit of time in which
  -- the product is exact
  local w, e = windows[l], now - epochs[c] * windows[l]
  if e < 0 then e = 0 end
  if (a > limit and a or limit) * w > EXACT then w, e = w / 1000, floor(e / 1000) end
  return limit - bs[c] + floor(-a * (w - e) / w)
end

-- store writes a counter's state as it was after its last charge.
local function store(c, l)
  local algorithm, window, epoch, a, b = algorithms[l], windows[l], epochs[c], as[c], bs[c]
  if not changed[c] and algorithm ~= LOG then epoch, a, b = held[c][1], held[c][2], held[c][3] end
  local value, idle
  if algorithm == SLIDING then
    idle = (epoch + 2) * window
    if a < 1000000 and b < 1000000 then value = format('%d%06d%06d', epoch % 9000000 + 1, a, b) end
  else
    if algorithm == FIXED then
      idle = (epoch + 1) * window
    elseif algorithm == CALENDAR then
      idle = window + PERIOD_MOVES
    elseif algorithm == LOG then
      local log = sub(logs[c], starts[c])
      idle = unpack_at('>I6', log, #log - 9) + window
      value = pack('>I6', a) .. log
    else
      idle = epoch - floor((a - sizes[l] * window) / units[l])
    end
    if not value and a >= 0 and a < 1000000000 then value = format('%d%09d', epoch % 9000000000 + 1, a) end
  end
  local ttl = idle - now + slack
  call('SET', KEYS[c], value or format('%.0f:%.0f:%.0f', epoch, a, b), 'PX', ttl > 1 and ttl or 1)
end

local reply, r, last = { now }, 2, #ARGV
while at < last do
  local head, cost = ARGV[at] + 0, ARGV[at + 1] + 0
  local n = head % 128
  local calls, misplaced = (head - n) / 128, false
  local admitted, first, from = calls, at + 2, r + 1
  for i = 0, n - 1 do
    local charge = ARGV[first + i] + 0
    local c, l, fits = floor(charge / 512), floor(charge % 512 / 2), 0
    if algorithms[l] == CALENDAR and (now < delays[l] or now >= windows[l]) then misplaced = true end
    local left = room(c, l)
    if left >= cost and cost <= sizes[l] then
      fits = calls
      if cost * calls > left then fits = floor(left / cost) end
    end
    reply[from + 4 * i] = fits
    if fits < admitted and charge % 2 == 0 then admitted = fits end
  end
  if misplaced then admitted = -1 end
  reply[r] = admitted
  for i = 0, n - 1 do
    local charge = ARGV[first + i] + 0
    local c, l = floor(charge / 512), floor(charge % 512 / 2)
    local j = from + 4 * i
    local taken = reply[j]
    if taken > admitted then taken = admitted end
    taken = taken * cost
    if taken > 0 then
      local algorithm = algorithms[l]
      if algorithm == SLIDING then
        bs[c] = bs[c] + taken
      elseif algorithm == BUCKET then
        as[c] = as[c] - taken * windows[l]
      else
        as[c] = as[c] + taken
        if algorithm == LOG then add_log(c, l, taken) end
      end
      charged[c], changed[c] = l, true
    end
    if algorithms[l] == LOG and logs[c] then bs[c] = reply[j] < calls and fits_at(c, l, cost) or 0 end
    reply[j + 1], reply[j + 2], reply[j + 3] = epochs[c] or 0, as[c] or 0, bs[c] or 0
  end
  r = from + 4 * n
  at = first + n
end

for c, l in pairs(charged) do store(c, l) end
return reply
