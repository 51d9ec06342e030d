"""What is measured beside a load: server metrics, GPUs, containers, processes."""
