package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// CiliumEndpoint has the fields that Cilium's IP cache reads.
type CiliumEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            EndpointStatus `json:"status"`
}

// EndpointStatus has the identity and the addresses of an endpoint.
type EndpointStatus struct {
	Identity   *Identity   `json:"identity,omitempty"`
	Networking *Networking `json:"networking,omitempty"`
	Encryption Encryption  `json:"encryption,omitempty"`
	NamedPorts []NamedPort `json:"named-ports,omitempty"`
}

// Identity has the number and the labels of an identity.
type Identity struct {
	ID     int64    `json:"id,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

// Networking has the addresses of an endpoint, and the address of its node.
type Networking struct {
	Addressing []Addresses `json:"addressing"`
	NodeIP     string      `json:"node,omitempty"`
}

// Addresses has at most one address of each family.
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

// CiliumEndpointList is a list of the API server.
type CiliumEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CiliumEndpoint `json:"items"`
}

// DeepCopyObject is required by the scheme. The informers copy no object.
func (e *CiliumEndpoint) DeepCopyObject() runtime.Object {
	copied := *e
	return &copied
}

// DeepCopyObject is required by the scheme.
func (l *CiliumEndpointList) DeepCopyObject() runtime.Object {
	copied := *l
	return &copied
}

// addListOptions registers the options of lists and watches for a group.
func addListOptions(group schema.GroupVersion) {
	metav1.AddToGroupVersion(scheme.Scheme, group)
}
