// Command access prints what the Go cloud controller manager makes of access lists: for each line of its input, a Service's
// annotations and spec.loadBalancerSourceRanges, the same line with the security rules of a dual-stack Service.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sort"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cloud-provider-azure/pkg/provider/loadbalancer"
	"sigs.k8s.io/cloud-provider-azure/pkg/provider/securitygroup"
)

type row struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Field       []string          `json:"field,omitempty"`
	Go          []string          `json:"go"`
	// What Lazuli does where that differs, and why.
	Lazuli *[]string `json:"lazuli,omitempty"`
	Why    string    `json:"why,omitempty"`
}

func rules(r row) ([]string, error) {
	annotations := map[string]string{}
	for key, value := range r.Annotations {
		annotations["service.beta.kubernetes.io/"+key] = value
	}
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: v1.ServiceSpec{
			LoadBalancerSourceRanges: r.Field,
			Ports:                    []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}},
		},
	}
	group := &armnetwork.SecurityGroup{Name: ptr.To("nsg"), Properties: &armnetwork.SecurityGroupPropertiesFormat{
		SecurityRules: []*armnetwork.SecurityRule{},
	}}
	silent := func(runtime.Object, string, string, string) {}
	control, err := loadbalancer.NewAccessControl(logr.Discard(), service, group, loadbalancer.WithEventEmitter(silent))
	if errors.Is(err, loadbalancer.ErrSetBothLoadBalancerSourceRangesAndAllowedIPRanges) {
		return []string{"refused"}, nil
	}
	if err != nil {
		return nil, err
	}
	four, six := []netip.Addr{netip.MustParseAddr("20.0.0.4")}, []netip.Addr{netip.MustParseAddr("2001:db8::4")}
	if err := control.PatchSecurityGroup(four, six); err != nil {
		return nil, err
	}
	after, _, err := control.SecurityGroup()
	if err != nil {
		return nil, err
	}
	all := []string{}
	for _, rule := range after.Properties.SecurityRules {
		sources := []string{}
		if one := rule.Properties.SourceAddressPrefix; one != nil {
			sources = append(sources, *one)
		}
		for _, one := range rule.Properties.SourceAddressPrefixes {
			sources = append(sources, *one)
		}
		sort.Strings(sources)
		access := strings.ToLower(string(*rule.Properties.Access))
		to := strings.Join(securitygroup.ListDestinationPrefixes(rule), ",")
		all = append(all, fmt.Sprintf("%s %s to %s", access, strings.Join(sources, ","), to))
	}
	sort.Strings(all)
	return all, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var err error
		if r.Go, err = rules(r); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
			os.Exit(1)
		}
		if err := out.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
