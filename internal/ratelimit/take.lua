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
--   then for each run of entries that differ in nothing but their counters
--     (entries * 2048 + calls) * 128 + n, where n is the number of charges of each call
--     cost of each call, in units; 0 peeks; or -1, and then n times that of a charge
--     n times: counter * 512 + limit * 2 + shadow, with the counter an index into KEYS and the
--     limit one into the limits, both from 1, and shadow 1 where the limit is not enforced; the
--     counters of each further entry are those n places on
--
-- Returns a flat list of integers: the time in ms, then for each entry
--   the number of its calls that are admitted; the rest, after them, are refused; or -1, and
--   nothing is charged, if a quota's period does not hold the time
--   n times: the number of calls that the limit would admit by itself, at most all, and the three
--   integers of the counter's state (see algorithms.go) after the entry
--
-- A call is admitted if every enforced limit admits its cost; then each limit that admits it is
-- charged, else none is. Each counter is loaded once and, if anything was charged to it, stored
-- once, with a TTL that ends when its state has nothing more to say. In a long list a counter that
-- already has that TTL keeps it: INCRBY is cheaper than SET. (One that lost its TTL behind our back
-- gets it again when it is charged in a short list, or in another window.)
--
-- A state is stored as one integer where its parts are small, so that Redis keeps it without a
-- string. Of a window or a quota it is below 2^53: the low bits hold a and b, the high ones one more
-- than the epoch modulo a number that is far longer than the state lives. Of a bucket, whose epochs
-- are milliseconds, the last nine digits hold a. Larger states are binary: the epoch in 6 bytes, then
-- a as a double, and of a sliding window b as another. So is a log: its units in 6 bytes, then for
-- each entry its time in 6 and its units in 4.
--
-- All numbers are integers below 2^53, which the doubles of Lua keep exactly.

local SLIDING, FIXED, BUCKET, LOG, CALENDAR = 1, 2, 3, 4, 5
local EXACT = 9007199254740991
local LOG_EXACT = 1024        -- as in slidinglog.go
local PERIOD_MOVES = 93600000 -- as in algorithms.go
local PART = 131072           -- of a and of b of a sliding window, each below 2^17
local SLOTS = 524287          -- of its epochs, below 2^19: of windows of a second 6 days
local LEVEL = 1073741824      -- of a of a fixed window or a quota, below 2^30
local LEVEL_SLOTS = 8388607   -- of their epochs, below 2^23: of windows of a second 97 days
local BUCKET_SLOTS = 9000000000 -- of the epochs of a bucket, in ms: 104 days
local SHORT = 4               -- keys of a list that is so short that every TTL is set anew
local floor, format, sub, find, tonumber = math.floor, string.format, string.sub, string.find, tonumber
local pack, unpack_at, size = struct.pack, struct.unpack, struct.size
local call = redis.call

local t = call('TIME')
local clock = t[1] * 1000 + floor(t[2] / 1000)
local now = ARGV[1] + 0
if now < 0 then now = clock end
local shift = clock - now + ARGV[2] -- from a time here to when Redis is to forget

local algorithms, units, windows, sizes, delays = {}, {}, {}, {}, {}
local bases = {} -- by limit: the epoch of a state that begins now
local ends = {}  -- by limit: the expiry of a state of that epoch, as text
local at = 4
for l = 1, ARGV[3] + 0 do
  local algorithm, window = ARGV[at] + 0, ARGV[at + 2] + 0
  algorithms[l], units[l], windows[l] = algorithm, ARGV[at + 1] + 0, window
  sizes[l], delays[l] = ARGV[at + 3] + 0, ARGV[at + 4] + 0
  if algorithm == CALENDAR then
    bases[l] = 0
  elseif algorithm == BUCKET then
    bases[l] = now
  else
    bases[l] = floor(now / window)
  end
  at = at + 5
end

local values = call('MGET', unpack(KEYS))
local epochs, as, bs = {}, {}, {} -- states by counter, rolled to now by the limit in rolled
local rolled = {}
local charged = {}                -- the limit that a counter was last charged by
local held = {}                   -- the state that it charged, where another limit has rolled it since
local same = {}                   -- the integer that is stored, where its epoch is still that of now
local logs, starts = {}, {}       -- of a log: its entries, and where the first in the window begins

-- large is the layout of a state that is no integer.
local function large(l) return algorithms[l] == SLIDING and '>I6dd' or '>I6d' end

-- load returns what is stored of a counter, or nothing for a value that this script has not stored:
-- such a counter begins anew, as a deleted one does, instead of failing all calls that travel with it.
local function load(c, l)
  local value = values[c]
  if not value then return end
  local n = tonumber(value)
  if not n then
    local layout = large(l)
    if #value ~= size(layout) then return end
    local epoch, a, b = unpack_at(layout, value)
    if algorithms[l] ~= SLIDING then b = 0 end
    if a % 1 ~= 0 or a > EXACT or a < -EXACT or b % 1 ~= 0 or b > EXACT or b < 0 then return end
    return epoch, a, b
  end
  if not (n >= 0 and n < 1e19 and n % 1 == 0) then return end
  local base, slots, slot, a, b = bases[l], LEVEL_SLOTS, 0, 0, 0
  local algorithm = algorithms[l]
  if algorithm == SLIDING then
    b = n % PART
    slot = (n - b) / PART
    a = slot % PART
    slots, slot = SLOTS, (slot - a) / PART
  elseif algorithm == BUCKET then
    if not find(value, '^%d+$') or #value < 10 then return end
    slots, slot, a = BUCKET_SLOTS, sub(value, 1, -10) + 0, sub(value, -9) + 0
  else
    a = n % LEVEL
    slot = (n - a) / LEVEL
  end
  if slot == 0 or slot > slots then return end
  local behind = base % slots + 1 - slot
  if behind == 0 then
    same[c] = n
    return base, a, b
  end
  -- of the epochs that are stored as this slot the last one, but for a clock that has stepped back
  if behind < 0 then behind = behind + slots end
  if behind > slots * 7 / 8 then behind = behind - slots end
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
-- rolled it before (one that was edited since), it starts again from what was charged last.
local function roll(c, l)
  local algorithm = algorithms[l]
  if algorithm == LOG then return roll_log(c, l) end
  local before = rolled[c]
  if before and charged[c] == before then held[c] = { epochs[c], as[c], bs[c] } end
  local base, epoch, a, b = bases[l]
  if held[c] then
    epoch, a, b = held[c][1], held[c][2], held[c][3]
  else
    epoch, a, b = load(c, l)
  end
  if not epoch then
    epoch, a, b = base, algorithm == BUCKET and sizes[l] * windows[l] or 0, 0
  elseif algorithm == BUCKET then
    local passed, full = now - epoch, sizes[l] * windows[l]
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
  if rolled[c] ~= l and algorithm ~= LOG then epoch, a, b = held[c][1], held[c][2], held[c][3] end
  local value, idle, expiry -- value is the text or the integer to store; expiry that of idle, if it is known
  if algorithm == SLIDING then
    if a < PART and b < PART then value = ((epoch % SLOTS + 1) * PART + a) * PART + b end
    idle = (epoch + 2) * window
  elseif algorithm == LOG then
    local log = sub(logs[c], starts[c])
    idle = unpack_at('>I6', log, #log - 9) + window
    value = pack('>I6', a) .. log
  elseif algorithm == BUCKET then
    idle = epoch - floor((a - sizes[l] * window) / units[l])
    if a >= 0 and a < 1000000000 and idle - now < BUCKET_SLOTS / 2 then value = format('%d%09d', epoch % BUCKET_SLOTS + 1, a) end
  else
    if a < LEVEL then value = (epoch % LEVEL_SLOTS + 1) * LEVEL + a end
    if algorithm == FIXED then idle = (epoch + 1) * window else idle = window + PERIOD_MOVES end
  end
  local current = epoch == bases[l] and algorithm ~= BUCKET and algorithm ~= LOG
  if current then
    local stored = same[c]
    if stored and value and #KEYS > SHORT then
      call('INCRBY', KEYS[c], format('%d', value - stored))
      return
    end
    expiry = ends[l]
  end
  if not expiry then
    expiry = format('%d', idle + shift)
    if current then ends[l] = expiry end
  end
  if not value then
    value = pack(large(l), epoch, a, b)
  elseif algorithm ~= BUCKET and algorithm ~= LOG then
    value = format('%d', value)
  end
  call('SET', KEYS[c], value, 'PXAT', expiry)
end

local reply, r, last = { now }, 2, #ARGV
local counters, limits, shadows, costs = {}, {}, {}, {} -- of the charges of a run's next entry
while at < last do
  local head, cost = ARGV[at] + 0, ARGV[at + 1] + 0
  local n = head % 128
  head = (head - n) / 128
  local calls = head % 2048
  local mixed = cost < 0
  if mixed then
    for i = 1, n do costs[i] = ARGV[at + 1 + i] + 0 end
    at = at + n
  end
  for i = 1, n do
    local charge = ARGV[at + 1 + i] + 0
    if not mixed then costs[i] = cost end
    shadows[i] = charge % 2
    limits[i] = (charge % 512 - shadows[i]) / 2
    counters[i] = floor(charge / 512)
  end
  at = at + 2 + n
  for _ = 1, (head - calls) / 2048 do
    local admitted, misplaced, from = calls, false, r + 1
    for i = 1, n do
      local c, l, cost, fits = counters[i], limits[i], costs[i], 0
      if algorithms[l] == CALENDAR and (now < delays[l] or now >= windows[l]) then misplaced = true end
      local left = room(c, l)
      if left >= cost and cost <= sizes[l] then
        fits = calls
        if cost * calls > left then fits = floor(left / cost) end
      end
      reply[from + 4 * i - 4] = fits
      if fits < admitted and shadows[i] == 0 then admitted = fits end
    end
    if misplaced then admitted = -1 end
    reply[r] = admitted
    r = from
    for i = 1, n do
      local c, l, cost, fits = counters[i], limits[i], costs[i], reply[r]
      local taken = (fits < admitted and fits or admitted) * cost
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
        charged[c] = l
      end
      if algorithms[l] == LOG and logs[c] then bs[c] = fits < calls and fits_at(c, l, cost) or 0 end
      reply[r + 1], reply[r + 2], reply[r + 3] = epochs[c] or 0, as[c] or 0, bs[c] or 0
      r = r + 4
      counters[i] = c + n
    end
  end
end

for c = 1, #KEYS do
  if charged[c] then store(c, charged[c]) end
end
return reply
