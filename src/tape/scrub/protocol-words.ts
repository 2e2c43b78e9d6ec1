/*
 * The words of the formats of Cilium and Kubernetes that a scrubbed tape keeps: names of fields, their values, and
 * labels and annotations that have a meaning for the agent. All other words are replaced. If a word is missing here, a
 * replay of the copy may behave differently, but no name is revealed. A test compares the list with the fields that the
 * readers read.
 */

const KVSTORE = `
  cilium state cache synced cluster-config nodes services endpointslices serviceexports identities ip id v1 default
  IP Mask HostIP ID Key Metadata K8sNamespace K8sPodName K8sServiceAccount NamedPorts Name Port Protocol
  Cluster ClusterID IPAddresses Type IPv4AllocCIDR IPv4SecondaryAllocCIDRs IPv6AllocCIDR IPv6SecondaryAllocCIDRs
  IPv4HealthIP IPv6HealthIP IPv4IngressIP IPv6IngressIP EncryptionKey Source Labels Annotations NodeIdentity WireguardPubKey
  BootID Hostname cluster clusterID namespace name frontends backends hostnames zones labels selector
  includeExternal shared exportCreationTimestamp sessionAffinity sessionAffinityConfig internalTrafficPolicy ipFamilies
  trafficDistribution capabilities syncedCanaries cached maxConnectedClusters serviceExportsEnabled endpointSlicesExportMode
  services-and-endpointslices endpointslices-only ClusterSetIP Headless annotations
  listing following watching waiting retrying failed`;

const KUBERNETES = `
  kind apiVersion metadata uid resourceVersion creationTimestamp deletionTimestamp generation ownerReferences spec specs status
  items type protocol port ports appProtocol targetPort nodePort clusterIP clusterIPs externalIPs externalName loadBalancer
  loadBalancerIP loadBalancerSourceRanges ingress egress hostname ipMode externalTrafficPolicy healthCheckNodePort
  publishNotReadyAddresses clientIP timeoutSeconds addressType addresses address conditions ready serving terminating hints
  forZones nodeName zone topology deprecatedTopology endpoints subsets notReadyAddresses targetRef identity networking
  addressing ipv4 ipv6 node encryption key health nodeidentity bootid ipam podCIDR podCIDRs
  ipv4CiliumHost ipv6CiliumHost ipv4HealthIP ipv6HealthIP ipv4IngressIP ipv6IngressIP pools allocated cidrs cidr
  security-labels named-ports service-account hostIP hostIPs podIP podIPs phase containers containerPort hostNetwork
  serviceAccountName serviceAccount except externalCIDRs ipBlock cidrGroupRef from to fromCIDR toCIDR fromCIDRSet toCIDRSet
  ingressDeny egressDeny matchLabels matchExpressions operator values nodeSelector endpointSelector podSelector
  namespaceSelector policyTypes
  ciliumcidrgroups ciliumclusterwidenetworkpolicies ciliumendpoints ciliumendpointslices ciliumidentities
  ciliumnetworkpolicies ciliumnodes networkpolicies namespaces pods`;

const VALUES = `
  TCP UDP SCTP ANY IPv4 IPv6 InternalIP ExternalIP CiliumInternalIP Hostname InternalDNS ExternalDNS ClusterIP NodePort
  LoadBalancer ExternalName None ClientIP Local Pending Running Succeeded Failed Unknown Auto auto true false local remote none
  PreferClose PreferSameZone PreferSameNode VIP Proxy in notin exists custom-resource kvstore clustermesh allow deny`;

const LABELS = `
  k8s reserved unspec cidr cidrgroup any host world world-ipv4 world-ipv6 unmanaged health init remote-node kube-apiserver
  kube-system kube-dns kubernetes k8s-app
  io.kubernetes.pod.namespace io.cilium.k8s.policy.cluster io.cilium.k8s.policy.serviceaccount io.cilium.heartbeat
  service.cilium.io io.cilium global-service service-affinity shared-service affinity global shared node node-selector weight
  service.kubernetes.io headless service-proxy-name topology-aware-hints topology-mode topology.kubernetes.io kubernetes.io
  service-name endpointslice.kubernetes.io managed-by network.cilium.io wg-pub-key encryption-key ipv4-pod-cidr ipv6-pod-cidr
  ipv4-health-ip ipv6-health-ip ipv4-Ingress-ip ipv6-Ingress-ip ipv4-cilium-host ipv6-cilium-host src-ranges-policy`;

/** Fields of the settings on a tape, of its lines, and their values. */
const TAPE = `
  clusterName nodeName serviceV2 network kubernetes watch identities serviceProxyName headlessServices nodeAnnotations
  encryptKey remoteNodeIdentities nodeEncryption hostFirewall underlay crd policies host-ips
  store rev more snap object scope services everything prefix keeps do start received listed lost value value64`;

/** Kept words. */
export const PROTOCOL_WORDS: ReadonlySet<string> = new Set(
  [KVSTORE, KUBERNETES, VALUES, LABELS, TAPE].join(' ').trim().split(/\s+/),
);

/** Kept beginnings of words; the rest of the word is replaced. */
export const PROTOCOL_PREFIXES: readonly string[] = ['io.cilium.k8s.namespace.labels.', 'io.cilium.network.'];
