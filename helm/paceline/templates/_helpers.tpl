{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Labels of every object; call with (dict "root" $ "part" "operator"). */}}
{{- define "paceline.labels" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* What selects the pods of a part; never changes over upgrades. */}}
{{- define "paceline.selector" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "paceline.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Security of a container: nothing that neither part needs. */}}
{{- define "paceline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Clusters such as GKE admit system-* priority classes only where a quota covers them. It limits
nothing. Call with (dict "root" $ "part" "agent" "namespace" … "class" …). */}}
{{- define "paceline.criticalPods" -}}
{{- if hasPrefix "system-" (default "" .class) }}
---
apiVersion: v1
kind: ResourceQuota
metadata:
  name: paceline-{{ .part }}
  namespace: {{ .namespace }}
  labels:
    {{- include "paceline.labels" . | nindent 4 }}
spec:
  hard: {pods: 1G}
  scopeSelector:
    matchExpressions:
      - {scopeName: PriorityClass, operator: In, values: [{{ .class }}]}
{{- end }}
{{- end }}
