-- Health of a SpecDecodeDeployment, from what the operator reports. Argo CD gives `obj`; no library of Lua is needed.
local status = obj.status or {}

local function health(state, message)
  return {status = state, message = message}
end

if status.conditions == nil then
  return health("Progressing", "The operator has not looked at it yet")
end
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "The operator has not looked at the newest spec yet")
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local ready = conditions.Ready or {}
local stalled = conditions.Stalled or {}
local reconciling = conditions.Reconciling or {}

local function line(condition)
  return (condition.reason or "Unknown") .. ": " .. (condition.message or "")
end

-- An aborted canary, an invalid spec, a name that is taken: nothing moves until a person acts.
if stalled.status == "True" then
  if status.stable ~= nil and ready.status == "True" then
    return health("Degraded", line(stalled) .. " (" .. status.stable.revision .. " serves)")
  end
  return health("Degraded", line(stalled))
end

local degraded = {
  StableUnavailable = true, PodsCrashing = true, ImageUnavailable = true,
  -- a canary is being ended; CanaryAborted follows
  CanaryDead = true, CanaryIncorrect = true, CanaryDoesNotFit = true, CanaryNotAccepting = true,
  CanaryErroring = true, CanaryStuck = true, CanaryRegressed = true, CanaryInconclusiveTooLong = true,
  ProgressDeadlineExceeded = true, UserAborted = true,
}
local suspended = {CanaryPaused = true, CanaryInconclusive = true, MarginNotResolvable = true}

local message = line(ready)
if status.canary ~= nil then
  message = status.canary.revision .. " at " .. (status.weight or "0%") .. ": " .. message
end
if degraded[ready.reason] then
  return health("Degraded", message)
end
if suspended[ready.reason] then
  return health("Suspended", message)
end
if reconciling.status == "True" then
  return health("Progressing", message)
end
if obj.spec.paused then
  return health("Suspended", "spec.paused holds the next canary. " .. message)
end
return health("Healthy", message)
