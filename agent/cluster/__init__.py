"""Workers on the machines of a cluster: hosts that run them, and the gateway to the learner."""
