"""All input and output: kopf handlers, work queue, reconcile, Kubernetes client, scraper, lease, own metrics."""
