-- Sends prepared POSTs, one after another and again, and looks at every answer; prints one line that wrk.py reads.
--
-- Arguments after `--`: what every right answer holds, the file with a body in each line, then headers as "Name: value".

local threads = {}

function setup(thread)
   table.insert(threads, thread)
end

function init(arguments)
   marker = arguments[1]
   local headers = {}
   for index = 3, #arguments do
      local name, value = arguments[index]:match("^([^:]+): (.*)$")
      headers[name] = value
   end
   messages = {}
   for body in io.lines(arguments[2]) do
      table.insert(messages, wrk.format("POST", nil, headers, body))
   end
   assert(#messages > 0)
   turn = 0
   wrong = 0
end

function request()
   turn = turn % #messages + 1
   return messages[turn]
end

function response(status, _, body)
   if status ~= 200 or not body:find(marker, 1, true) or body:find('"isError":%s*true') then
      wrong = wrong + 1
   end
end

function done(summary, latency)
   local wrong_answers = 0
   for _, thread in ipairs(threads) do
      wrong_answers = wrong_answers + thread:get("wrong")
   end
   local errors = summary.errors
   io.write(string.format("MEASURED %d %d %d %d %d %d\n", summary.requests, summary.duration,
      latency:percentile(50.0), latency:percentile(99.0), wrong_answers,
      errors.connect + errors.read + errors.write + errors.timeout))
end
