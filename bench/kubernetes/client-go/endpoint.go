package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// CiliumEndpoint has what Cilium's IP cache reads of one.
type CiliumEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            EndpointStatus `json:"status"`
}

// EndpointStatus says where an endpoint is.
type EndpointStatus struct {
	Identity   *Identity   `json:"identity,omitempty"`
	Networking *Networking `json:"networking,omitempty"`
	Encryption Encryption  `json:"encryption,omitempty"`
	NamedPorts []NamedPort `json:"named-ports,omitempty"`
}

// Identity is who an endpoint is.
type Identity struct {
	ID     int64    `json:"id,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

// Networking has its addresses, and that of its node.
type Networking struct {
	Addressing []Addresses `json:"addressing"`
	NodeIP     string      `json:"node,omitempty"`
}

// Addresses are one of each family.
type Addresses struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// Encryption has the number of a key.
type Encryption struct {
	Key int `json:"key,omitempty"`
}

// NamedPort is a port by its name.
type NamedPort struct {
	Name     string `json:"name"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
}

// CiliumEndpointList is a list as the API server says it.
type CiliumEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CiliumEndpoint `json:"items"`
}

// DeepCopyObject is asked for by the scheme. Nothing that these informers do copies an object.
func (e *CiliumEndpoint) DeepCopyObject() runtime.Object {
	copied := *e
	return &copied
}

// DeepCopyObject is asked for by the scheme.
func (l *CiliumEndpointList) DeepCopyObject() runtime.Object {
	copied := *l
	return &copied
}

// The options of lists and watches are parameters of any group.
func addListOptions(group schema.GroupVersion) {
	metav1.AddToGroupVersion(scheme.Scheme, group)
}
