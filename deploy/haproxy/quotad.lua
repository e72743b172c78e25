-- Asks quotad whether a request may pass, as the action "http-request lua.quotad".
--
-- A refusal is answered here, with quotad's status, headers and body, and ends the request. Otherwise the variables
-- txn.quotad_… are set from quotad's answer, each only where the answer has it, or txn.quotad_away is true, where no
-- quotad answered. The request's body is never read.

-- The frontend of haproxy.cfg that leads to quotad's nodes.
local socket, url = "abns@quotad", "http://quotad/v1/authorize"

-- The request's headers that quotad reads. Repeated ones are passed on as they are: two keys are refused.
local asked = {
	"accept", "accept-language", "access-control-request-method", "authorization", "origin", "x-api-key", "x-request-id",
	"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
}

-- The headers of an admission, and the variables that carry them.
local told = {
	["x-quotad-tenant"] = "txn.quotad_tenant",
	["x-quotad-key-id"] = "txn.quotad_key",
	["x-quotad-tier"] = "txn.quotad_tier",
	["x-quotad-route-group"] = "txn.quotad_group",
	["x-quotad-degraded"] = "txn.quotad_degraded",
	["x-quotad-delay-ms"] = "txn.quotad_delay",
	["x-ratelimit-limit"] = "txn.quotad_limit",
	["x-ratelimit-remaining"] = "txn.quotad_remaining",
	["x-ratelimit-reset"] = "txn.quotad_reset",
	["ratelimit"] = "txn.quotad_ratelimit",
	["ratelimit-policy"] = "txn.quotad_policy",
}

-- Headers of quotad's answer that are about its own connection, or ours to it.
local ours = { ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["x-quotad-answered"] = true }

-- list makes a list of the values that HAProxy counts from 0.
local function list(values)
	local l = {}
	for i = 0, #values do
		l[#l + 1] = values[i]
	end
	return l
end

local function quotad(txn)
	local headers, sent = txn.http:req_get_headers(), {}
	for _, name in ipairs(asked) do
		if headers[name] then
			sent[name] = list(headers[name])
		end
	end
	sent["x-forwarded-method"] = { txn.f:method() }
	sent["x-forwarded-uri"] = { txn.f:pathq() }

	local answer = core.httpclient():get({ url = url, dst = socket, headers = sent })
	if not answer or not answer.headers or not answer.headers["x-quotad-answered"] then
		txn:set_var("txn.quotad_away", true)
		return
	end
	if answer.status == 200 then
		for name, variable in pairs(told) do
			local value = answer.headers[name] and answer.headers[name][0]
			if value and value ~= "" then
				txn:set_var(variable, value)
			end
		end
		return
	end
	local reply = txn:reply({ status = answer.status, reason = answer.reason })
	for name, values in pairs(answer.headers) do
		if not ours[name] then
			for _, value in ipairs(list(values)) do
				reply:add_header(name, value)
			end
		end
	end
	reply:set_body(answer.body)
	txn:done(reply)
end

core.register_action("quotad", { "http-req" }, quotad, 0)
