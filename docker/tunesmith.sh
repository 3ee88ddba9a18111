#!/bin/sh
# The tunesmith command in the images, as ./run cli is in a checkout.
exec /opt/tunesmith/app/bin/python -m tunesmith "$@"
