-- Holds the canary at its step, or the next one before its first; guards still act.
obj.spec.paused = true
return obj
