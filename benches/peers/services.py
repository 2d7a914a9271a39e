#!/usr/bin/env python3
"""A comparison's SPEC (dir, mode, services), as a file of services for `berth supervise`: services.py SPEC > FILE."""
import json, sys


def service(of, mode):
    ours = {'name': of['name'], 'argv': of['argv'], 'after': of.get('after', [])}
    if 'ready_fd' in of:
        ours['ready_fd'] = of['ready_fd']
    elif 'ready_file' in of:
        ours['ready_file'] = of['ready_file']
    if mode == 'fast':
        ours['restart_delay'] = '0ms'
    return ours


with open(sys.argv[1]) as file:
    spec = json.load(file)
json.dump({'services': [service(of, spec['mode']) for of in spec['services']]}, sys.stdout)
