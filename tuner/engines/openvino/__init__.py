"""Engine that runs models in OpenVINO, a runtime that competes with what is compiled."""
