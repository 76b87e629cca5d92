//! Licences and bill of materials that go into the packages.

use architecture::{Workspace, third_party};

#[test]
fn every_shipped_package_is_in_both_with_a_licence() {
    let workspace = Workspace::survey();
    let packages = third_party::packages(&workspace);
    let (licences, bill) = (third_party::licences(&packages), third_party::bill(&workspace, &packages));
    let bill: serde_json::Value = serde_json::from_str(&bill).expect("the bill is JSON");
    let components = bill["components"].as_array().expect("it has components");
    assert!(packages.len() > 50 && components.len() == packages.len());
    for (package, component) in packages.iter().zip(components) {
        assert_eq!(component["name"], package.name.as_str());
        assert!(
            component["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64),
            "{component}"
        );
        assert!(component["licenses"][0]["expression"] != "NOASSERTION", "{component}");
        let line = format!("{} {}  ", package.name, package.version);
        assert!(licences.lines().any(|text| text.starts_with(&line)), "{line} is missing");
    }
}

#[test]
fn what_only_tests_need_is_not_shipped() {
    let workspace = Workspace::survey();
    let names: Vec<_> =
        third_party::packages(&workspace).iter().map(|package| package.name.to_string()).collect();
    assert!(["tokio", "libc", "prost"].iter().all(|name| names.iter().any(|there| there == name)));
    assert!(["proptest", "loom"].iter().all(|name| names.iter().all(|there| there != name)));
}

#[test]
fn no_path_of_this_machine_is_in_them() {
    let workspace = Workspace::survey();
    let packages = third_party::packages(&workspace);
    let both = third_party::licences(&packages) + &third_party::bill(&workspace, &packages);
    let folder = packages[0].manifest_path.ancestors().nth(2).expect("sources lie in a folder").as_str();
    assert!(!both.contains(folder) && !both.contains(&architecture::root().display().to_string()));
}
