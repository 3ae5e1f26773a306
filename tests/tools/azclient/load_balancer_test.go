package azclient

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
)

// part names a part of the load balancer "kubernetes".
func part(balancer *armnetwork.LoadBalancer, member, name string) *armnetwork.SubResource {
	return &armnetwork.SubResource{ID: to.Ptr(*balancer.ID + "/" + member + "/" + name)}
}

// service is what the cloud controller manager names the frontend of a service.
const service = "a1"

// withRule adds probe and rule of the service.
func withRule(balancer *armnetwork.LoadBalancer) {
	const rule = service + "-TCP-80"
	properties := balancer.Properties
	properties.Probes = append(properties.Probes, &armnetwork.Probe{
		Name: to.Ptr(rule),
		Properties: &armnetwork.ProbePropertiesFormat{
			Protocol: to.Ptr(armnetwork.ProbeProtocolTCP), Port: to.Ptr[int32](30080),
			IntervalInSeconds: to.Ptr[int32](5), ProbeThreshold: to.Ptr[int32](2),
		},
	})
	properties.LoadBalancingRules = append(properties.LoadBalancingRules, &armnetwork.LoadBalancingRule{
		Name: to.Ptr(rule),
		Properties: &armnetwork.LoadBalancingRulePropertiesFormat{
			Protocol: to.Ptr(armnetwork.TransportProtocolTCP), FrontendPort: to.Ptr[int32](80), BackendPort: to.Ptr[int32](80),
			EnableFloatingIP: to.Ptr(true), EnableTCPReset: to.Ptr(true), DisableOutboundSnat: to.Ptr(true),
			IdleTimeoutInMinutes:    to.Ptr[int32](4),
			FrontendIPConfiguration: part(balancer, "frontendIPConfigurations", service),
			BackendAddressPool:      part(balancer, "backendAddressPools", "kubernetes"),
			Probe:                   part(balancer, "probes", rule),
		},
	})
}

func TestAServiceLivesAsTheCloudControllerManagerWritesIt(t *testing.T) {
	ctx, group, location := t.Context(), azure.group, to.Ptr(azure.location)
	addresses, balancers := azure.clients.GetPublicIPAddressClient(), azure.clients.GetLoadBalancerClient()
	groups, interfaces := azure.clients.GetSecurityGroupClient(), azure.clients.GetInterfaceClient()

	address, err := addresses.CreateOrUpdate(ctx, group, "kubernetes-a1", armnetwork.PublicIPAddress{
		Location: location, SKU: &armnetwork.PublicIPAddressSKU{Name: to.Ptr(armnetwork.PublicIPAddressSKUNameStandard)},
		Tags: map[string]*string{"k8s-azure-service": to.Ptr("default/web")},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{
			PublicIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodStatic),
		},
	})
	must(t, err)
	balancer, err := balancers.CreateOrUpdate(ctx, group, "kubernetes", armnetwork.LoadBalancer{
		Location: location, SKU: &armnetwork.LoadBalancerSKU{Name: to.Ptr(armnetwork.LoadBalancerSKUNameStandard)},
		Properties: &armnetwork.LoadBalancerPropertiesFormat{
			FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{{
				Name: to.Ptr(service),
				Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{
					PublicIPAddress: &armnetwork.PublicIPAddress{ID: address.ID},
				},
			}},
			BackendAddressPools: []*armnetwork.BackendAddressPool{{Name: to.Ptr("kubernetes")}},
		},
	})
	must(t, err)
	withRule(balancer)
	written, err := balancers.CreateOrUpdate(ctx, group, "kubernetes", *balancer)
	must(t, err)
	if rules := written.Properties.Probes[0].Properties.LoadBalancingRules; len(rules) != 1 {
		t.Fatalf("the probe shows %d rules", len(rules))
	}
	// The body's entity tag goes along as If-Match, and is old by now.
	_, err = balancers.CreateOrUpdate(ctx, group, "kubernetes", *balancer)
	refused(t, err, http.StatusPreconditionFailed, "PreconditionFailed")

	// A node joins the pool; the load balancer has another entity tag.
	nic, err := interfaces.Get(ctx, group, "node-0-nic", nil)
	must(t, err)
	nic.Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools =
		[]*armnetwork.BackendAddressPool{{ID: written.Properties.BackendAddressPools[0].ID}}
	_, err = interfaces.CreateOrUpdate(ctx, group, "node-0-nic", *nic)
	must(t, err)
	_, err = balancers.CreateOrUpdate(ctx, group, "kubernetes", *written)
	refused(t, err, http.StatusPreconditionFailed, "PreconditionFailed")
	balancer, err = balancers.Get(ctx, group, "kubernetes", nil)
	must(t, err)
	members := balancer.Properties.BackendAddressPools[0].Properties.BackendIPConfigurations
	if len(members) != 1 || !strings.Contains(*members[0].ID, "node-0-nic") {
		t.Fatalf("members: %+v", members)
	}
	// What was read can be written.
	_, err = balancers.CreateOrUpdate(ctx, group, "kubernetes", *balancer)
	must(t, err)

	// The way in is opened.
	security, err := groups.CreateOrUpdate(ctx, group, "nodes", armnetwork.SecurityGroup{Location: location})
	must(t, err)
	security.Properties.SecurityRules = []*armnetwork.SecurityRule{{
		Name: to.Ptr("k8s-azure-lb_allow_IPv4_1"),
		Properties: &armnetwork.SecurityRulePropertiesFormat{
			Protocol: to.Ptr(armnetwork.SecurityRuleProtocolTCP), Access: to.Ptr(armnetwork.SecurityRuleAccessAllow),
			Direction: to.Ptr(armnetwork.SecurityRuleDirectionInbound), Priority: to.Ptr[int32](500),
			SourcePortRange: to.Ptr("*"), SourceAddressPrefix: to.Ptr("Internet"),
			DestinationAddressPrefixes: []*string{address.Properties.IPAddress},
			DestinationPortRanges:      []*string{to.Ptr("80")},
		},
	}}
	security, err = groups.CreateOrUpdate(ctx, group, "nodes", *security)
	must(t, err)
	if own := *security.Properties.SecurityRules[0].Properties.Priority; own != 500 {
		t.Fatalf("priority: %d", own)
	}

	// All goes, in the order in which it can.
	refused(t, addresses.Delete(ctx, group, "kubernetes-a1"), http.StatusBadRequest, "PublicIPAddressCannotBeDeleted")
	nic, err = interfaces.Get(ctx, group, "node-0-nic", nil)
	must(t, err)
	nic.Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools = nil
	_, err = interfaces.CreateOrUpdate(ctx, group, "node-0-nic", *nic)
	must(t, err)
	must(t, balancers.Delete(ctx, group, "kubernetes"))
	must(t, addresses.Delete(ctx, group, "kubernetes-a1"))
	must(t, groups.Delete(ctx, group, "nodes"))
}

func TestAPoolOfAddressesAndRoutesAreWrittenAlone(t *testing.T) {
	ctx, group, location := t.Context(), azure.group, to.Ptr(azure.location)
	balancers, pools := azure.clients.GetLoadBalancerClient(), azure.clients.GetBackendAddressPoolClient()
	networks, err := azure.clients.GetVirtualNetworkClient().List(ctx, group)
	must(t, err)
	_, err = balancers.CreateOrUpdate(ctx, group, "internal", armnetwork.LoadBalancer{
		Location: location, SKU: &armnetwork.LoadBalancerSKU{Name: to.Ptr(armnetwork.LoadBalancerSKUNameStandard)},
		Properties: &armnetwork.LoadBalancerPropertiesFormat{
			// Without a frontend a load balancer has no other part.
			FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{{
				Name: to.Ptr(service),
				Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{
					Subnet: &armnetwork.Subnet{ID: networks[0].Properties.Subnets[0].ID},
				},
			}},
		},
	})
	must(t, err)
	pool, err := pools.CreateOrUpdate(ctx, group, "internal", "kubernetes", armnetwork.BackendAddressPool{
		Properties: &armnetwork.BackendAddressPoolPropertiesFormat{
			VirtualNetwork: &armnetwork.SubResource{ID: networks[0].ID},
			LoadBalancerBackendAddresses: []*armnetwork.LoadBalancerBackendAddress{{
				Name:       to.Ptr("node-0"),
				Properties: &armnetwork.LoadBalancerBackendAddressPropertiesFormat{IPAddress: to.Ptr("10.240.0.4")},
			}},
		},
	})
	must(t, err)
	if addresses := pool.Properties.LoadBalancerBackendAddresses; *addresses[0].Properties.IPAddress != "10.240.0.4" {
		t.Fatalf("addresses: %+v", addresses)
	}
	must(t, pools.Delete(ctx, group, "internal", "kubernetes"))
	must(t, balancers.Delete(ctx, group, "internal"))

	tables := azure.clients.GetRouteTableClient()
	table, err := tables.CreateOrUpdate(ctx, group, "routes", armnetwork.RouteTable{Location: location})
	must(t, err)
	table.Properties.Routes = []*armnetwork.Route{{
		Name: to.Ptr("node-0"),
		Properties: &armnetwork.RoutePropertiesFormat{
			AddressPrefix: to.Ptr("10.244.0.0/24"), NextHopIPAddress: to.Ptr("10.240.0.4"),
			NextHopType: to.Ptr(armnetwork.RouteNextHopTypeVirtualAppliance),
		},
	}}
	table, err = tables.CreateOrUpdate(ctx, group, "routes", *table)
	must(t, err)
	if len(table.Properties.Routes) != 1 {
		t.Fatalf("routes: %+v", table.Properties.Routes)
	}
	must(t, tables.Delete(ctx, group, "routes"))
}

func TestTheZonesOfARegionAreTold(t *testing.T) {
	zones, err := azure.clients.GetProviderClient().GetVirtualMachineSupportedZones(t.Context())
	must(t, err)
	if own := zones[azure.location]; len(own) != 3 {
		t.Fatalf("zones of %s: %v", azure.location, own)
	}
}
