{{- define "specfleet.selector" -}}
app.kubernetes.io/name: specfleet-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "specfleet.labels" -}}
{{ include "specfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "specfleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default .Release.Name }}
{{- else }}{{ required "serviceAccount.name: set it, or let serviceAccount.create be true" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "specfleet.subject" -}}
- kind: ServiceAccount
  name: {{ include "specfleet.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* What the operator does in a namespace that it serves; it writes nothing on a SpecDecodeDeployment but /status. */}}
{{- define "specfleet.rules" -}}
- apiGroups: [specfleet.dev]
  resources: [specdecodedeployments]
  verbs: [list, watch]
- apiGroups: [specfleet.dev]
  resources: [specdecodedeployments/status]
  verbs: [patch]
# Owner references that block the owner's deletion need this where the API server enforces it, as OpenShift's does.
- apiGroups: [specfleet.dev]
  resources: [specdecodedeployments/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
# A user's own route is patched, ours comes and goes. A Gateway is only looked at, to say when it is not there.
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if .Values.apiKeySecrets.read }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- end }}
