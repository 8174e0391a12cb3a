-- Lets the canary go on from its step.
obj.spec.paused = false
return obj
