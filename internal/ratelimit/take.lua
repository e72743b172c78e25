-- take judges a list of calls, in order, each against all its limits in one step.
--
-- KEYS  the counters, each once, all under one hash tag
-- ARGV  [1] the time in ms, or '' for this server's own clock (always '' outside tests)
--       [2] ms to add to every TTL (0 outside tests)
--       [3] the number of limits, then for each limit
--             algorithm   's' sliding window counter, 'f' fixed window, 't' token bucket
--             units       per window; 0 admits nothing
--             window      in ms
--             size        the most that one call can take: the burst of a bucket, else units
--       then for each call
--             cost        in units; 0 peeks
--             n           the number of its charges (at most 50), then for each charge
--               counter   index into KEYS, from 1
--               limit     index into the limits, from 1; negative for a shadow
-- returns a flat list of integers: the time in ms, then for each call
--       a bit set of the charges whose limit refuses the cost (the first charge is bit 0), then
--       for each charge the three integers of the counter's state after the call
--
-- A call is admitted if no refusing charge is enforced; then every charge that admits the cost is
-- charged, else none is. A counter is loaded once and, if anything was charged to it, stored once,
-- with a TTL that ends when the state has nothing more to say. States are those of algorithms.go.
--
-- A state is stored as one integer where its parts are small, so that Redis keeps it without a
-- string: the low digits hold a and b, the high digits one more than the epoch modulo `wrap`, which
-- is far longer than any state lives. Larger states are three integers between colons.
--
-- All numbers are integers below 2^53, which the doubles of Lua keep exactly.

local exact = 9007199254740991
local floor, format, sub = math.floor, string.format, string.sub
local call = redis.call

local now, slack = ARGV[1], ARGV[2] + 0
if now == '' then
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
else
  now = now + 0
end

-- load returns the state of a stored value, not yet rolled. base is the epoch that a fresh state has.
local function load(value, algorithm, base)
  if string.find(value, ':', 1, true) then
    local epoch, a, b = string.match(value, '^(%d+):(%d+):(%d+)$')
    return epoch + 0, a + 0, b + 0
  end
  local wrap, slot, a, b = 9000000000, nil, nil, 0
  if algorithm == 's' then
    wrap, slot, a, b = 9000000, sub(value, 1, -13) - 1, sub(value, -12, -7) + 0, sub(value, -6) + 0
  else
    slot, a = sub(value, 1, -10) - 1, sub(value, -9) + 0
  end
  -- the epoch nearest to base of those that are stored as this slot
  local behind = (base - slot) % wrap
  if behind > wrap / 2 then behind = behind - wrap end
  return base - behind, a, b
end

-- current returns a counter's state, loaded (value is false where there is none) and rolled to now.
local function current(value, l)
  local algorithm, window = l.algorithm, l.window
  if algorithm == 't' then
    if not value or l.units == 0 then return now, l.size * window, 0 end
    return load(value, 't', now)
  end
  local k = floor(now / window)
  if not value then return k, 0, 0 end
  return load(value, algorithm, k)
end

local function roll(l, epoch, a, b)
  local algorithm = l.algorithm
  if algorithm == 't' then
    local full, passed = l.size * l.window, now - epoch
    if passed < 0 then passed = 0 end
    if passed * l.units >= full - a then a = full else a = a + passed * l.units end
    if now > epoch then epoch = now end
    return epoch, a, 0
  end
  local k = floor(now / l.window)
  if k <= epoch then return epoch, a, b end
  if algorithm == 's' and k == epoch + 1 then return k, b, 0 end
  return k, 0, 0
end

local function admits(l, cost, epoch, a, b)
  local algorithm, units = l.algorithm, l.units
  if algorithm == 't' then return cost <= l.size and cost * l.window <= a end
  if algorithm == 'f' then return a + cost <= units end
  -- previous * (window - elapsed) + (current + cost) * window <= units * window, in the unit of
  -- time in which the products are exact
  local h = units - b - cost
  if h < 0 then return false end
  if a == 0 then return true end
  local w, e = l.window, now - epoch * l.window
  if e < 0 then e = 0 end
  if (a > units and a or units) * w > exact then
    w, e = w / 1000, floor(e / 1000)
  end
  return a * (w - e) <= h * w
end

local function store(key, l, epoch, a, b)
  local algorithm, value, idle = l.algorithm, nil, nil
  if algorithm == 't' then
    local missing = l.size * l.window - a
    idle = floor(missing / l.units)
    while idle * l.units < missing do idle = idle + 1 end
    idle = epoch + idle
  else
    idle = (epoch + (algorithm == 's' and 2 or 1)) * l.window
  end
  if algorithm == 's' and a < 1000000 and b < 1000000 then
    value = format('%d%06d%06d', epoch % 9000000 + 1, a, b)
  elseif algorithm ~= 's' and a < 1000000000 then
    value = format('%d%09d', epoch % 9000000000 + 1, a)
  else
    value = format('%.0f:%.0f:%.0f', epoch, a, b)
  end
  local ttl = idle - now + slack
  if ttl < 1 then ttl = 1 end
  call('SET', key, value, 'PX', format('%.0f', ttl))
end

local limits, at = {}, 4
for i = 1, ARGV[3] + 0 do
  limits[i] = { algorithm = ARGV[at], units = ARGV[at + 1] + 0, window = ARGV[at + 2] + 0, size = ARGV[at + 3] + 0 }
  at = at + 4
end

local epochs, as, bs, charged = {}, {}, {}, {}
local reply, r, last = { now }, 2, #ARGV

while at < last do
  local cost, n = ARGV[at] + 0, ARGV[at + 1] + 0
  local refusing, bit, allowed = 0, 1, true
  local admitting = {}
  at = at + 2
  for i = 0, n - 1 do
    local c, index = ARGV[at + 2 * i] + 0, ARGV[at + 2 * i + 1] + 0
    local l = limits[index < 0 and -index or index]
    local epoch, a, b = epochs[c], as[c], bs[c]
    if not epoch then epoch, a, b = current(call('GET', KEYS[c]), l) end
    if l.units > 0 then epoch, a, b = roll(l, epoch, a, b) end
    epochs[c], as[c], bs[c] = epoch, a, b
    if l.units > 0 and admits(l, cost, epoch, a, b) then
      admitting[i] = l
    else
      refusing = refusing + bit
      if index > 0 then allowed = false end
    end
    bit = bit * 2
  end
  reply[r] = refusing
  r = r + 1
  for i = 0, n - 1 do
    local c, l = ARGV[at + 2 * i] + 0, admitting[i]
    if allowed and l and cost > 0 then
      if l.algorithm == 't' then
        as[c] = as[c] - cost * l.window
      elseif l.algorithm == 'f' then
        as[c] = as[c] + cost
      else
        bs[c] = bs[c] + cost
      end
      charged[c] = l
    end
    reply[r], reply[r + 1], reply[r + 2] = epochs[c], as[c], bs[c]
    r = r + 3
  end
  at = at + 2 * n
end

for c, l in pairs(charged) do
  store(KEYS[c], l, epochs[c], as[c], bs[c])
end
return reply
