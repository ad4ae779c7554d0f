{{/* The configuration file: keys that other values set, over those of `config`. */}}

{{- define "ringmain.config" -}}
{{- $admin := dict
  "address" (printf "127.0.0.1:%d" (int .Values.ports.admin))
  "metrics" (printf ":%d" (int .Values.ports.metrics)) -}}
{{- $limits := dict
  "drain" (printf "%ds" (int .Values.shutdown.drain))
  "drain_delay" (printf "%ds" (int .Values.shutdown.delay)) -}}
{{- with .Values.shutdown.spread -}}{{- $_ := set $limits "drain_spread" (printf "%ds" (int .)) -}}{{- end -}}
{{- $set := dict "admin" $admin "limits" $limits -}}
{{- if .Values.gatewayAPI.enabled -}}
{{- $pool := .Values.gatewayAPI.addresses -}}
{{- if eq $pool "pod" -}}{{- $pool = "${env:POD_IP}" -}}{{- end -}}
{{- $_ := set $set "kubernetes" (dict
  "addresses" (dict "pool" $pool)
  "controller" .Values.gatewayAPI.controllerName) -}}
{{- end -}}
{{- $cluster := .Values.pushCluster -}}
{{- if $cluster.name -}}
{{- $folder := "/etc/ringmain-push" -}}
{{- $_ := set $set "certificates" (dict "push-node" (dict "chain" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder))) -}}
{{- $_ := set $set "authorities" (dict "push-nodes" (printf "%s/ca.crt" $folder)) -}}
{{- $service := dict "service" $cluster.name "port" "push-cluster" -}}
{{- $tls := dict "certificate" "push-node" "authorities" "push-nodes" "server_name" $cluster.serverName -}}
{{- $node := dict
  "listen" (printf "%s:%d" $cluster.address (int $cluster.port))
  "name" "${env:POD_NAME}"
  "role" $cluster.role
  "weight" (int $cluster.weight)
  "nodes" (dict "kubernetes" $service)
  "tls" $tls -}}
{{- with $cluster.log -}}{{- $_ := set $node "log" . -}}{{- end -}}
{{- with $cluster.rebalance -}}{{- $_ := set $node "rebalance" . -}}{{- end -}}
{{- $_ := set $set "push" (dict "cluster" $node) -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $set) -}}
{{- end -}}

{{/* The keys that a process reads only at its start: a change of them replaces Pods. */}}
{{- define "ringmain.startConfig" -}}
{{- $config := include "ringmain.config" . | fromYaml -}}
{{- $start := pick $config "admin" "access_log" "kubernetes" "limits" -}}
{{- with dig "push" "cluster" "" $config -}}{{- $_ := set $start "push.cluster" . -}}{{- end -}}
{{- toJson $start -}}
{{- end -}}

{{/* Rejects combinations that the schema cannot describe in words. */}}
{{- define "ringmain.validate" -}}
{{- $v := .Values -}}
{{- $isRange := ne $v.gatewayAPI.addresses "pod" -}}
{{- $config := $v.config -}}
{{- if not $v.image.repository -}}
{{- fail "image.repository is required: the registry and name that the image was pushed to, such as registry.example.com/ringmain" -}}
{{- end -}}
{{- if not (regexMatch "^(pod|[0-9.]+(/[0-9]+)?|[0-9a-fA-F:]*:[0-9a-fA-F:]*(/[0-9]+)?)$" $v.gatewayAPI.addresses) -}}
{{- fail (printf "gatewayAPI.addresses: expected `pod`, or a range such as 10.97.0.0/16, found %q" $v.gatewayAPI.addresses) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9.-]+/[^/ ][^ ]*$" $v.gatewayAPI.controllerName) -}}
{{- fail (printf "gatewayAPI.controllerName: expected a domain and a path such as ringmain.dev/gateway, found %q" $v.gatewayAPI.controllerName) -}}
{{- end -}}
{{- if or (hasPrefix "/" $v.ioUring.profile) (contains ".." $v.ioUring.profile) (not $v.ioUring.profile) -}}
{{- fail (printf "ioUring.profile: expected a path below /var/lib/kubelet/seccomp such as ringmain.json, found %q" $v.ioUring.profile) -}}
{{- end -}}
{{- if hasKey $config "kubernetes" -}}
{{- fail "config.kubernetes: set gatewayAPI instead, from which the chart writes this key" -}}
{{- end -}}
{{- if hasKey ($config.push | default dict) "cluster" -}}
{{- fail "config.push.cluster: set pushCluster instead, which has the Service and the rights, too" -}}
{{- end -}}
{{- if and $v.pushCluster.name (not $v.pushCluster.tlsSecret) -}}
{{- fail "pushCluster.tlsSecret is required: nodes authenticate each other, with certificates of an authority for this purpose alone" -}}
{{- end -}}
{{- if and $v.pushCluster.name $v.hostNetwork -}}
{{- fail "pushCluster is for Pods with a network of their own: with hostNetwork several would have one address" -}}
{{- end -}}
{{- if and $v.pushCluster.name (not $v.existingConfigMap) (not $config.push) -}}
{{- fail "pushCluster.name: config has no push" -}}
{{- end -}}
{{- range $key := list "address" "metrics" -}}
{{- if hasKey ($config.admin | default dict) $key -}}
{{- fail (printf "config.admin.%s: set ports instead, which the probes use too" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := dict "drain" "drain" "drain_delay" "delay" "drain_spread" "spread" -}}
{{- if hasKey ($config.limits | default dict) $key -}}
{{- fail (printf "config.limits.%s: set shutdown.%s instead, from which terminationGracePeriodSeconds is calculated" $key $value) -}}
{{- end -}}
{{- end -}}
{{- if gt (int $v.shutdown.spread) (int $v.shutdown.drain) -}}
{{- fail "shutdown.spread must not exceed shutdown.drain" -}}
{{- end -}}
{{- if and (not $v.gatewayAPI.enabled) (not $v.existingConfigMap) (not (or $config.listen $config.listeners)) -}}
{{- fail "nothing to serve: gatewayAPI.enabled is false, and config has neither listen nor listeners" -}}
{{- end -}}
{{- if and $v.existingConfigMap $config -}}
{{- fail "config has no effect with existingConfigMap: leave one of them out" -}}
{{- end -}}
{{- if and $v.gatewayAPI.enabled $isRange (not $v.hostNetwork) -}}
{{- fail (printf "gatewayAPI.addresses: the range %s requires hostNetwork: true; Pods with a network of their own have no address of it" $v.gatewayAPI.addresses) -}}
{{- end -}}
{{- if and $v.privilegedPorts (not $v.hostNetwork) -}}
{{- fail "privilegedPorts is for hostNetwork: Pods with a network of their own may listen on all ports" -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled $v.hostNetwork -}}
{{- fail "networkPolicy.enabled: a NetworkPolicy has no effect on Pods with hostNetwork" -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if ne $v.kind "Deployment" -}}
{{- fail "autoscaling.enabled requires kind: Deployment" -}}
{{- end -}}
{{- if not (or $v.autoscaling.cpu $v.autoscaling.pushClients) -}}
{{- fail "autoscaling.enabled requires a criterion: autoscaling.cpu or autoscaling.pushClients" -}}
{{- end -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas must not exceed autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and $v.autoscaling.cpu (not (dig "requests" "cpu" "" $v.resources)) -}}
{{- fail "autoscaling.cpu requires resources.requests.cpu, of which it is a percentage" -}}
{{- end -}}
{{- end -}}
{{- if and $v.rbac.allSecrets $v.rbac.secrets -}}
{{- fail "rbac.allSecrets includes rbac.secrets: leave one of them out" -}}
{{- end -}}
{{- if and $v.rbac.allConfigMaps $v.rbac.configMaps -}}
{{- fail "rbac.allConfigMaps includes rbac.configMaps: leave one of them out" -}}
{{- end -}}
{{- end -}}
