{{/* Rules of Roles. tests/kube/chart.py compares them with the kinds that crates/kube reads and writes. */}}

{{/* Kinds of gateway.networking.k8s.io in namespaces whose status is written, apart from those of the chart's GatewayClass. */}}
{{- define "ringmain.statusKinds" -}}
[gateways, listenersets, httproutes, grpcroutes, tlsroutes, tcproutes, udproutes, backendtlspolicies]
{{- end -}}

{{/* Lists and watches, which the program does for all namespaces at once. */}}
{{- define "ringmain.readRules" -}}
- apiGroups: [gateway.networking.k8s.io]
  resources: {{ concat (list "gatewayclasses") (include "ringmain.statusKinds" . | fromYamlArray) (list "referencegrants") | toJson }}
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  resourceNames: [{{ .Values.gatewayAPI.gatewayClass.name }}]
  verbs: [get]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses/status]
  resourceNames: [{{ .Values.gatewayAPI.gatewayClass.name }}]
  verbs: [update]
{{- if .Values.gatewayAPI.experimental }}
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackendtrafficpolicies]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{/* Writes in the namespaces of Gateways and routes. */}}
{{- define "ringmain.writeRules" -}}
{{- $kinds := include "ringmain.statusKinds" . | fromYamlArray -}}
{{- $status := list -}}
{{- range $kinds }}{{ $status = append $status (printf "%s/status" .) }}{{ end -}}
# Read again when a status was changed by others meanwhile, or was refused.
- apiGroups: [gateway.networking.k8s.io]
  resources: {{ $kinds | toJson }}
  verbs: [get]
- apiGroups: [gateway.networking.k8s.io]
  resources: {{ $status | toJson }}
  verbs: [update]
{{- if .Values.gatewayAPI.experimental }}
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackendtrafficpolicies]
  verbs: [get]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackendtrafficpolicies/status]
  verbs: [update]
{{- end }}
# The Service of each Gateway, and the Gateway as its owner, which some clusters permit by this right only.
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/finalizers]
  verbs: [update]
{{ include "ringmain.eventRules" . }}
{{- end -}}

{{/* Findings that no condition can carry. */}}
{{- define "ringmain.eventRules" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, get, patch]
{{- end -}}

{{/* The Lease of the replica that writes statuses. */}}
{{- define "ringmain.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ regexReplaceAll "[^A-Za-z0-9.-]" .Values.gatewayAPI.controllerName "-" | lower | quote }}]
  verbs: [get, update]
{{- end -}}

{{/* The nodes of the push cluster. */}}
{{- define "ringmain.nodeRules" -}}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end -}}

{{/* The head of a binding's subject. */}}
{{- define "ringmain.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ringmain.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
