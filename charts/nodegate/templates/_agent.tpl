{{/* The spec of the agent's pod, of (dict "root" $ "static" …): of the DaemonSet, or of a static pod. */}}
{{- define "nodegate.agentPod" -}}
{{- $root := .root }}
{{- $static := .static }}
{{- with .root.Values }}
{{- if not $static }}
serviceAccountName: {{ include "nodegate.account" (list $root "agent") | toYaml }}
automountServiceAccountToken: true
{{- end }}
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The load balancer probes the node's own address, without any Service, CNI or kube-proxy on the way. The
# local checks use the node's own 127.0.0.1.
hostNetwork: true
# The node's own resolv.conf, which the check `network` tests. The agent itself needs no name: it finds the API
# server by the address in its environment, and must not depend on a cluster DNS that runs on top of it.
dnsPolicy: Default
enableServiceLinks: false
{{- if not $static }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .tolerations }}
# Every node, to the end: a node that is being drained, is NotReady or out of disk must still report that.
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
# The kubelet does not evict the pod under node pressure, ends it last in a graceful node shutdown, and the OOM
# killer picks it last. The cost: on a full node the second pod of an update preempts other pods, so the agent
# stays small.
priorityClassName: {{ toYaml . }}
{{- end }}
# Above NODEGATE_SHUTDOWN_GRACE (5s), which starts at SIGTERM; no preStop is needed.
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  {{- if not .openshift.enabled }}
  # A UID that nothing else uses. Processes of one UID may share a port, so a pod on the host's network with the
  # default user of many images (65532, 65534) could take connections of the agent. No system assigns 65521.
  runAsUser: {{ .runAsUser }}
  runAsGroup: {{ .runAsUser }}
  {{- end }}
  {{- if .hostChecks.enabled }}
  {{- with .hostChecks.supplementalGroups }}
  # containerd and CRI-O give their sockets to root:root with 0660. Only the check container_runtime needs this.
  supplementalGroups: {{ toJson . }}
  {{- end }}
  {{- with .hostChecks.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: nodegate
    {{- include "nodegate.image" (dict "image" .image "root" $root) | nindent 4 }}
    # No `ports:`, on purpose. On the host's network a containerPort becomes a hostPort by default, and the
    # scheduler never puts a second pod with the same hostPort on a node: maxSurge would hang forever.
    env:
      - name: NODE_NAME
        valueFrom:
          fieldRef:
            fieldPath: spec.nodeName
      # The last known facts of the node, for an agent that starts while no API server answers.
      - name: NODEGATE_STATE_DIR
        value: /var/lib/nodegate
      {{- if $static }}
      - name: KUBECONFIG
        value: /etc/nodegate/kubeconfig
      {{- end }}
      {{- if .hostChecks.enabled }}
      - name: NODEGATE_HOST_ROOT
        value: /host
      {{- end }}
      {{- if .hostSignals.enabled }}
      - name: NODEGATE_HOST_SIGNALS
        value: /run/nodegate
      {{- end }}
      {{- with .extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with include "nodegate.env" (dict "root" $root "of" "settings" "settings" .settings) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
    volumeMounts:
      - name: state
        mountPath: /var/lib/nodegate
      {{- if $static }}
      - name: kubeconfig
        mountPath: /etc/nodegate/kubeconfig
        readOnly: true
      {{- end }}
      {{- if .hostChecks.enabled }}
      - name: host
        mountPath: /host
        # It does not apply to filesystems that are mounted below `/`. There the agent's user and its dropped
        # capabilities leave only files that every user may write, such as a separate /tmp. (recursiveReadOnly
        # would reach them, but Kubernetes allows it only without propagation.)
        readOnly: true
        # The pod sees disks that are mounted later, and releases disks that are unmounted: a copy that stayed in
        # the pod would keep the device busy. That needs a shared `/`, as systemd sets it up; elsewhere run
        # `mount --make-rshared /`.
        mountPropagation: HostToContainer
      {{- end }}
      {{- if .hostSignals.enabled }}
      - name: host-signals
        mountPath: /run/nodegate
        readOnly: true
      {{- end }}
      {{- with .extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .resources }}
    # Requests equal to limits: QoS class Guaranteed. The CPU limit is 10 ms in each 100 ms of the scheduler
    # (CFS). Measured with it: some 2,600 probes a second with a new connection each. Beyond that an answer waits
    # for the next 100 ms, which is within a load balancer's timeout. The limit bounds a client that floods a port
    # that is open to the network. Memory: 12 MiB are the agent's budget; 1,024 connections
    # with half a request each, the most that a port holds, took 23 MiB; the rest is for the kernel's memory of
    # their sockets.
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "nodegate.containerSecurity" . | nindent 4 }}
    # The agent's own health, never the node's: /health is for load balancers, and a NotReady node must not restart
    # the agent that reports it. No `host:`: the kubelet probes the pod's address, which is the node's.
    startupProbe:
      # Must be longer than NODEGATE_STALE_AFTER (15s; at most 20 s of it) and the few seconds for first results and
      # last known facts.
      httpGet:
        path: /livez
        port: {{ include "nodegate.port" $root }}
      periodSeconds: 1
      timeoutSeconds: 2
      failureThreshold: {{ .startupSeconds }}
    readinessProbe:
      httpGet:
        path: /readyz
        port: {{ include "nodegate.port" $root }}
      periodSeconds: 5
      timeoutSeconds: 2
      failureThreshold: 2
    livenessProbe:
      httpGet:
        path: /livez
        port: {{ include "nodegate.port" $root }}
      periodSeconds: 10
      timeoutSeconds: 2
      failureThreshold: 3
volumes:
  # Lives as long as the pod, so it survives a crash of the agent and a reboot of the node. The pod of an update
  # starts with an empty one, and queries its predecessor. Small files: one is written every 20 s, one every minute
  # and when the node's state changes.
  - name: state
    emptyDir:
      sizeLimit: 1Mi
  {{- if $static }}
  - name: kubeconfig
    hostPath:
      path: /etc/kubernetes/nodegate.conf
      type: File
  {{- end }}
  {{- if .hostChecks.enabled }}
  # All of the node's `/`, as far as user 65521 with group 0 may read: every file that is readable by all users or by
  # group root. With group 0 comes the socket of the container runtime. A program that can connect to that socket can
  # start a privileged container: that is as good as root on the node. The agent only requests the runtime's status,
  # but an attacker who takes over the agent can send other requests.
  #
  # The whole `/` instead of single directories: the agent can check the disks in the mount table only where they are
  # mounted, which differs on each node. A directory that does not exist keeps the pod from starting or is created on
  # the node, and each runtime has another one for its socket. A mount of the socket alone would be the old socket
  # after a restart of the runtime.
  - name: host
    hostPath:
      path: /
      type: Directory
  {{- end }}
  {{- if .hostSignals.enabled }}
  # Only nodegate-shutdown writes into it, as root of the node. The kubelet creates it, for a node without that service.
  - name: host-signals
    hostPath:
      path: /run/nodegate
      type: DirectoryOrCreate
  {{- end }}
  {{- with .extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
