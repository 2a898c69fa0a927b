//! The arrows between the rooms (ARCHITECTURE.md), kept by a test over `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each room's shipped code may use of the others. A new room needs a row.
const ROOMS: &[(&str, &[&str])] = &[
    ("dropgate-domain", &[]),
    ("dropgate-events", &["dropgate-domain"]),
    ("dropgate-runtime", &[]),
    ("dropgate-migrations", &[]),
    (
        "dropgate-admission",
        &["dropgate-domain", "dropgate-events"],
    ),
    ("dropgate-stream", &["dropgate-domain", "dropgate-events"]),
    (
        "dropgate-store",
        &["dropgate-domain", "dropgate-migrations"],
    ),
    (
        "dropgate-engine",
        &[
            "dropgate-domain",
            "dropgate-events",
            "dropgate-admission",
            "dropgate-stream",
        ],
    ),
    ("dropgate-gateway", SERVICE),
    ("dropgate-order-writer", SERVICE),
    ("dropgate-reconciler", SERVICE),
    ("dropgate", OPERATORS),
    ("dropgate-model", &["dropgate-domain"]),
    // Measures from outside, and shares nothing with what it measures.
    ("dropgate-loadtest", &[]),
    // Measures side by side, and is not shipped: it may use what it measures, and the test kit.
    (
        "dropgate-bench",
        &[
            "dropgate-domain",
            "dropgate-admission",
            "dropgate-engine",
            "dropgate-events",
            "dropgate-stream",
            "dropgate-testkit",
        ],
    ),
    // Hurts the whole from outside, and asks the model whether it could have done what the log says.
    (
        "dropgate-chaos",
        &[
            "dropgate-domain",
            "dropgate-events",
            "dropgate-model",
            "dropgate-testkit",
        ],
    ),
    // Starts servers and processes, and knows none of our code.
    ("dropgate-testkit", &[]),
];

/// A service uses every room below, and no other service.
const SERVICE: &[&str] = &[
    "dropgate-domain",
    "dropgate-events",
    "dropgate-runtime",
    "dropgate-admission",
    "dropgate-stream",
    "dropgate-store",
    "dropgate-engine",
];

/// The operators' command joins the services.
const OPERATORS: &[&str] = &[
    "dropgate-domain",
    "dropgate-events",
    "dropgate-runtime",
    "dropgate-admission",
    "dropgate-stream",
    "dropgate-store",
    "dropgate-engine",
    "dropgate-gateway",
    "dropgate-order-writer",
    "dropgate-reconciler",
];

/// Libraries that only certain rooms know.
const CLIENTS: &[(&str, &[&str])] = &[
    // The bench measures against a handler that has nothing between it and the driver.
    ("fred", &["dropgate-admission", "dropgate-bench"]),
    ("rdkafka", &["dropgate-stream"]),
    ("rusqlite", &["dropgate-stream"]),
    ("sea-orm", &["dropgate-store", "dropgate-migrations"]),
    (
        "sea-orm-migration",
        &["dropgate-store", "dropgate-migrations"],
    ),
    ("sqlx", &[]),
];

/// Names that say nothing about what is inside, so that everything ends up there.
const NO_NAMES: &[&str] = &["common", "util", "utils", "helpers", "shared", "misc"];

/// Package name to the names of what its shipped code depends on.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Everything that is wrong with a graph, in words.
fn violations(graph: &Graph) -> Vec<String> {
    let rooms: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let clients: BTreeMap<&str, &[&str]> = CLIENTS.iter().copied().collect();
    let mut found = Vec::new();
    for (package, dependencies) in graph {
        if package
            .split(['-', '_'])
            .any(|word| NO_NAMES.contains(&word))
        {
            found.push(format!("{package}: a room is named by what it does"));
        }
        let Some(allowed) = rooms.get(package.as_str()) else {
            found.push(format!("{package}: has no row in the table of rooms"));
            continue;
        };
        for dependency in dependencies.iter().map(String::as_str) {
            if graph.contains_key(dependency) && !allowed.contains(&dependency) {
                found.push(format!("{package} must not use {dependency}"));
            }
            if clients
                .get(dependency)
                .is_some_and(|who| !who.contains(&package.as_str()))
            {
                found.push(format!("{package} must not know {dependency}"));
            }
        }
    }
    found
}

/// The workspace as it is. What tests alone use is left out.
fn workspace() -> cargo_metadata::Result<Graph> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()?;
    let shipped = |package: &cargo_metadata::Package| {
        package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .map(|dependency| dependency.name.clone())
            .collect()
    };
    Ok(metadata
        .packages
        .iter()
        .map(|package| (package.name.to_string(), shipped(package)))
        .collect())
}

fn plant(workspace: &Graph, package: &str, dependency: &str) -> Vec<String> {
    let mut graph = workspace.clone();
    let dependencies = graph.entry(package.to_owned()).or_default();
    dependencies.insert(dependency.to_owned());
    violations(&graph)
}

#[test]
fn the_workspace_keeps_its_arrows() {
    let graph = workspace().unwrap();
    assert!(graph.len() > 10, "the workspace was not read: {graph:?}");
    let found = violations(&graph);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_planted_violation_is_found() {
    let workspace = workspace().unwrap();
    for (package, dependency) in [
        // Service to service.
        ("dropgate-gateway", "dropgate-order-writer"),
        ("dropgate-reconciler", "dropgate"),
        // Adapter to adapter.
        ("dropgate-admission", "dropgate-stream"),
        ("dropgate-stream", "dropgate-store"),
        ("dropgate-store", "dropgate-admission"),
        // Upwards.
        ("dropgate-domain", "dropgate-events"),
        ("dropgate-engine", "dropgate-gateway"),
        // What is shipped, and the test kit.
        ("dropgate-gateway", "dropgate-testkit"),
        ("dropgate", "dropgate-testkit"),
        ("dropgate-testkit", "dropgate-domain"),
        ("dropgate-loadtest", "dropgate-domain"),
        // Clients that one room alone knows.
        ("dropgate-engine", "fred"),
        ("dropgate-gateway", "rdkafka"),
        ("dropgate-store", "rusqlite"),
        ("dropgate-order-writer", "sea-orm"),
    ] {
        let found = plant(&workspace, package, dependency);
        assert_eq!(found.len(), 1, "{package} -> {dependency}: {found:?}");
        assert!(found[0].contains(package) && found[0].contains(dependency));
    }
}

#[test]
fn a_room_without_a_row_or_with_an_empty_name_is_found() {
    let workspace = workspace().unwrap();
    assert_eq!(plant(&workspace, "dropgate-new", "serde").len(), 1);
    let found = plant(&workspace, "dropgate-common", "serde");
    assert_eq!(found.len(), 2, "{found:?}");
}
