//! Which load balancer a Service is placed on.
