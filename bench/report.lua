-- The first argument is the length of the body to send with each request.
function init(args)
  local length = tonumber(args[1] or "0")
  if length > 0 then
    wrk.method = "POST"
    wrk.body = string.rep("x", length)
  end
end

-- wrk's own report is for people; this line is for load.py.
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "failed": %d, "us": %d, "p50_us": %d, "p99_us": %d}\n',
    summary.requests, e.connect + e.read + e.write + e.status + e.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99)))
end
