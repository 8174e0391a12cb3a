-- Orders the canary to end; it stays aborted until the spec changes.
if obj.status == nil or obj.status.canary == nil then
  return obj
end
if obj.spec.rollout == nil then
  obj.spec.rollout = {}
end
obj.spec.rollout.action = {
  type = "Abort",
  revision = obj.status.canary.revision,
  -- every write makes a new resourceVersion, so this id was never used before
  id = "argocd-abort-" .. obj.metadata.resourceVersion,
}
return obj
