//! explore
use super::*;
#[test]
fn explore() {
    let example = include_str!("../../../../examples/scenario.yaml");
    let s = load("s.yaml", example, &mut |_| Ok(vec![])).unwrap_or_else(|e| panic!("{e}"));
    println!("{:#?}", s.settings);
    for bad in [
        "", "flows: 1", "a: 1", "flows: []\nx: 1", "flows:\n  - name: a\n", "flows:\n  - name: a\n    steps: [{request: {path: 1}}]\n    steps: 2", "flows:\n  - nam: a\n",
        "flows: []", "rate: x\nflows: []", "rate: 1\nduration: 5\nflows: []","duration: 5d\nflows: []", "connections: 0\nflows: []", "connections: -1\nflows: []", "connections: 99999999999\nflows: []",
        "flows: [\n", "flows: [}\n", "a\n---\nb", "flows: *x", "flows:\n  - name: a\n    steps:\n      - request: {path: '/{{x}}'}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        expect: {status: 1xx}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        expect: {status: [200, {a: 1}]}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        expect: {status: []}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        expect: {header: {nam: 1}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        expect: {header: [{name: X, equals: 1, contains: 2}]}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        capture: {x: {cookie: 1}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        capture: {x: {between: [a]}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/'}\n        capture: {x: abc}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', headers: {A: [1]}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', headers: {A: }}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', headers: {A: 1, A: 2}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', headers: {A b: 1}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', headers: {A: true, B: 1.50, C: no}, json: {a: {{seq}}}}\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', json: {a: .nan, 1: 2}}\n",
        "\tflows: 1", "poisson: yes\nflows: []", "seed: -1\nflows: []", "seed: 1.5\nflows: []",
        "flows:\n- name: &x a\n  steps: [{request: {path: *x}}]\n",
        "flows:\n  - name: a\n    steps:\n      - request: {path: '/', body: a, json: 1}\n",
        "thresholds: p99\nflows: []", "{{seq}}", "target: \"a\u{0}\"", "a: |\n b\n c",
    ] {
        println!("{}\n    {:?}", bad.replace('\n', "⏎"), load("s.yaml", bad, &mut |_| Ok(vec![])).map(|_| ()).map_err(|e| e.to_string()));
    }
}
