package dashboards

// nothingToSee are queries that show nothing after the work of this fleet, and why. Their metrics and labels exist all the
// same.
var nothingToSee = map[string]string{}

// notSaid are values of labels that no process of this fleet says, and when one does. Each is a text of the program.
var notSaid = map[string]string{
	"kind=nic": "network interfaces are written where backend pools hold them, and here they hold addresses",
}
