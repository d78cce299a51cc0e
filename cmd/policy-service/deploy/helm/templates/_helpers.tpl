{{/* Labels of one part of the release: pdp, gateway or balancer. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* The pods of each part are as the restricted pod security standard asks, with a root that cannot be written to. */}}
{{- define "confined" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  fsGroup: 65534
  fsGroupChangePolicy: OnRootMismatch # else it opens the keys to the group at every start
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "labels" . | nindent 8 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "confinedContainer" -}}
lifecycle:
  preStop: # until every node knows that it goes; the image has no shell to sleep with
    sleep: {seconds: 5}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The kubelet verifies no certificate, and shows none: it is told the status and nothing else. */}}
{{- define "probes" -}}
startupProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end }}

{{- define "image" -}}
{{ required "image is missing: set it to the image of policy-service in your registry, such as --set image=registry.example.com/policy-service:v0.1.0" .Values.image }}
{{- end }}

{{/* A volume of a Secret: its owner and the group of the pod read it, and nobody else. */}}
{{- define "secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
{{- end }}

{{/* The configuration of the PDPs: what the chart sets wins over config. */}}
{{- define "config" -}}
{{- $endpoints := .Values.etcd.endpoints -}}
{{- if not $endpoints }}{{ fail "etcd.endpoints is missing: list the URLs of the members of your etcd, 3.6 or newer, such as --set 'etcd.endpoints={https://etcd-0.etcd:2379,https://etcd-1.etcd:2379,https://etcd-2.etcd:2379}'" }}{{ end -}}
{{- $etcd := dict "endpoints" $endpoints "ca_file" "/etcd/ca.crt" "cert_file" "/etcd/tls.crt" "key_file" "/etcd/tls.key" "prefix" .Values.etcd.prefix -}}
{{- $set := dict "data" "/data/state" "listen" ":8180" "policies" "/policies" -}}
{{- $_ := set $set "tls" (dict "cert_file" "/tls/tls.crt" "key_file" "/tls/tls.key" "client_ca_file" "/tls/ca.crt") -}}
{{- $_ := set $set "cluster" (dict "etcd" $etcd "secrets" "/shared") -}}
{{- if .Values.serviceMonitor.enabled }}{{ $_ := set $set "metrics" (dict "token_file" "/metrics/token") }}{{ end -}}
{{- $public := dict "public_url" (printf "https://%s.%s.svc:8180" .Release.Name .Release.Namespace) -}}
{{- toYaml (mustMergeOverwrite $public (deepCopy .Values.config) $set) -}}
{{- end }}

{{/* The configuration of the gateways. */}}
{{- define "gatewayConfig" -}}
{{- $config := .Values.gateway.config -}}
{{- range $key := list "resource" "identity" "upstreams" }}
{{- if not (get $config $key) }}{{ fail (printf "gateway.config.%s is missing, which a gateway needs: see pdp/mcp/REFERENCE.md" $key) }}{{ end }}
{{- end -}}
{{- $set := dict "listen" ":8443" "tls" (dict "cert_file" "/tls/tls.crt" "key_file" "/tls/tls.key") -}}
{{- $_ := set $set "pdp" (dict "url" (printf "https://%s.%s.svc:8180" .Release.Name .Release.Namespace) "ca_file" "/tls/ca.crt" "key_file" "/secrets/pdp.key") -}}
{{- $_ := set $set "seal" (dict "key_files" (list "/secrets/seal.key")) -}}
{{- $_ := set $set "tool_requests" (dict "keep" "pdp") -}}
{{- $hosts := dict "allowed_hosts" (list (printf "%s-gateway.%s.svc" .Release.Name .Release.Namespace) (printf "%s-gateway.%s.svc:8443" .Release.Name .Release.Namespace)) -}}
{{- toYaml (mustMergeOverwrite $hosts (deepCopy $config) $set) -}}
{{- end }}

{{/* haproxy.cfg has three gateways, and is its backend of gateways at the end: the others follow. */}}
{{- define "haproxy" -}}
{{ .Files.Get "haproxy.cfg" }}
{{- range $n := untilStep 3 (int .Values.gateway.replicas) 1 }}
    server gateway-{{ $n }} {{ $.Release.Name }}-gateway-{{ $n }}.{{ $.Release.Name }}-gateway-pods.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:8443
{{- end }}
{{ end }}
