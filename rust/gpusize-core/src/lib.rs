//! The engine of gpusize: schedules, the wire, records, and the simulated cluster. No Python in it.
