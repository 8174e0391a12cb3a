-- Which actions a SpecDecodeDeployment offers now.
local status = obj.status or {}

-- An order is looked for in the spec that is in force, so not while that is old or the newest one is invalid.
local deaf = status.observedGeneration ~= obj.metadata.generation
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "ConfigValid" and condition.status == "False" then
    deaf = true
  end
end

local no_canary = status.canary == nil or deaf
local paused = obj.spec.paused == true

local actions = {}
actions["promote"] = {
  ["disabled"] = no_canary or status.reason == "CanaryPromoting",
  ["iconClass"] = "fa fa-fw fa-fast-forward", ["displayName"] = "Promote canary"
}
actions["abort"] = {
  ["disabled"] = no_canary,
  ["iconClass"] = "fa fa-fw fa-stop", ["displayName"] = "Abort canary"
}
actions["pause"] = {
  ["disabled"] = paused or deaf,
  ["iconClass"] = "fa fa-fw fa-pause", ["displayName"] = "Pause"
}
actions["resume"] = {
  ["disabled"] = not paused,
  ["iconClass"] = "fa fa-fw fa-play", ["displayName"] = "Resume"
}
return actions
