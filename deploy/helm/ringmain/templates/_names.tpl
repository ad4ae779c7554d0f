{{/* Names, labels, and the image. */}}

{{- define "ringmain.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ringmain.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "ringmain.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ringmain.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* ClusterRoles have no namespace: releases of one name in several namespaces must not share them. */}}
{{- define "ringmain.clusterName" -}}
{{- $name := include "ringmain.fullname" . -}}
{{- if eq $name .Release.Namespace }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end -}}
{{- end -}}

{{- define "ringmain.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ringmain.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ringmain.configMapName" -}}
{{- default (include "ringmain.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "ringmain.selector" -}}
app.kubernetes.io/name: {{ include "ringmain.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ringmain.labels" -}}
{{ include "ringmain.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The label of the Pods of a push cluster, in all of its releases. */}}
{{- define "ringmain.pushClusterLabel" -}}
ringmain.dev/push-cluster: {{ .Values.pushCluster.name }}
{{- end -}}

{{- define "ringmain.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}
