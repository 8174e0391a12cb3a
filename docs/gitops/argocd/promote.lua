-- Orders the canary on to 100 %: no more steps and no more proof, but guards and capacity still hold.
if obj.status == nil or obj.status.canary == nil then
  return obj
end
if obj.spec.rollout == nil then
  obj.spec.rollout = {}
end
obj.spec.rollout.action = {
  type = "Promote",
  revision = obj.status.canary.revision,
  -- every write makes a new resourceVersion, so this id was never used before
  id = "argocd-promote-" .. obj.metadata.resourceVersion,
}
return obj
