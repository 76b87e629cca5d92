//! Imports between the modules of a crate, read from its sources, and the circles among its files.
//!
//! An import is a path, in a `use`, in code or in an attribute, that leads to an item of another file. Declaring a module
//! imports nothing, neither does re-exporting a name that the file itself does not use. A re-exported name leads to the
//! file that defines the item, and through the files that re-export it. Methods are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// The modules of one target of a crate.
#[derive(Debug, Default)]
struct Target {
    modules: Vec<Module>,
}

#[derive(Debug, Default)]
struct Module {
    parent: Option<usize>,
    file: PathBuf,
    children: BTreeMap<String, usize>,
    /// Names of the items that are defined here.
    items: BTreeSet<String>,
    /// Names that `use` binds here, with their paths.
    bound: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Names of `bound` that are handed on to other modules.
    handed_on: BTreeSet<String>,
    /// Paths of two or more segments in code.
    paths: Vec<Vec<String>>,
    /// Names in code that stand alone or begin a path.
    names: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// Files that each file imports from, with the names that it takes.
pub type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The imports between the files of a target that begins with this file. Test modules are left out.
///
/// # Panics
/// If a source cannot be read or is no Rust.
pub fn of_target(root: &Path) -> Imports {
    let mut target = Target::default();
    target.load(None, root, &root.with_file_name(""));
    let mut imports = Imports::new();
    for (at, module) in target.modules.iter().enumerate() {
        let is_used = |name: &String| !module.handed_on.contains(name) || module.names.contains(name);
        let bound = module.bound.iter().filter(|(name, _)| is_used(name)).map(|(_, path)| (path, false));
        let globs = module.globs.iter().map(|path| (path, true));
        for (path, is_glob) in bound.chain(globs).chain(module.paths.iter().map(|path| (path, false))) {
            let mut through = Vec::new();
            match target.resolve(at, path, 0, &mut through) {
                Some(Found::Module(found)) if is_glob => through.push(found),
                Some(Found::Item(found)) => through.push(found),
                _ => continue,
            }
            let others = through.into_iter().map(|found| &target.modules[found].file);
            for other in others.filter(|other| **other != module.file) {
                let names = imports.entry(module.file.clone()).or_default().entry(other.clone()).or_default();
                names.insert(path.last().cloned().unwrap_or_default());
            }
        }
    }
    imports
}

/// Sets of files that import each other in a loop, the files of each in order.
pub fn circles(imports: &Imports) -> Vec<Vec<PathBuf>> {
    let reach = |from: &PathBuf| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            let next = imports.get(file).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.filter(|file| reached.insert((*file).clone())));
        }
        reached
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (file, reach(file))).collect();
    let mutual = |file: &PathBuf| -> Vec<PathBuf> {
        let back = |other: &&PathBuf| reached.get(other).is_some_and(|theirs| theirs.contains(file));
        reached[file].iter().filter(back).cloned().collect()
    };
    let circles: BTreeSet<_> = imports.keys().map(mutual).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

impl Target {
    /// Loads a module's file and those of its children, which lie in this folder.
    fn load(&mut self, parent: Option<usize>, file: &Path, folder: &Path) -> usize {
        let source =
            std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.enter(parent, file, folder, &parsed.items)
    }

    fn enter(&mut self, parent: Option<usize>, file: &Path, folder: &Path, items: &[Item]) -> usize {
        let at = self.modules.len();
        self.modules.push(Module { parent, file: file.to_owned(), ..Module::default() });
        let mut reader = Reader::default();
        items.iter().for_each(|item| reader.visit_item(item));
        self.modules[at] = Module { parent, file: file.to_owned(), ..reader.module };
        for child in reader.children {
            let name = child.ident.to_string();
            let inside = folder.join(&name);
            let child = match &child.content {
                Some((_, items)) => self.enter(Some(at), file, &inside, items),
                None => {
                    let named = path_of(&child.attrs).map(|path| file.with_file_name(path));
                    let flat = folder.join(format!("{name}.rs"));
                    let (file, inside) = match named {
                        Some(file) => (file.clone(), file.with_file_name("")),
                        None if flat.exists() => (flat, inside),
                        None => (inside.join("mod.rs"), inside),
                    };
                    self.load(Some(at), &file, &inside)
                }
            };
            self.modules[at].children.insert(name, child);
        }
        at
    }

    /// The place where a path leads that is written in a module; none outside the crate. The modules that re-export
    /// a name on the way are added to `through`.
    fn resolve(&self, from: usize, path: &[String], depth: usize, through: &mut Vec<usize>) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let begin = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => Found::Module(self.modules[from].parent?),
            name => self.named(from, name, depth, through)?,
        };
        rest.iter().try_fold(begin, |found, name| match found {
            Found::Module(at) if name == "super" => Some(Found::Module(self.modules[at].parent?)),
            // A name that is not seen comes from a macro of that module.
            Found::Module(at) => Some(self.named(at, name, depth, through).unwrap_or(Found::Item(at))),
            Found::Item(_) => Some(found),
        })
    }

    /// The place of a name in the scope of a module.
    fn named(&self, at: usize, name: &str, depth: usize, through: &mut Vec<usize>) -> Option<Found> {
        const DEEPEST: usize = 8;
        let module = &self.modules[at];
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Found::Item(at));
        }
        if depth > DEEPEST {
            return None;
        }
        if let Some(path) = module.bound.get(name) {
            through.push(at);
            return self.resolve(at, path, depth + 1, through);
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, depth + 1, &mut Vec::new())? {
            Found::Module(other) if other != at => self.named(other, name, depth + 1, through),
            _ => None,
        })
    }
}

/// Collects what one module defines, binds and names, without its test modules.
#[derive(Default)]
struct Reader<'a> {
    module: Module,
    children: Vec<&'a ItemMod>,
}

impl<'a> Visit<'a> for Reader<'a> {
    fn visit_item(&mut self, item: &'a Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if let Some(name) = name(item) {
            self.module.items.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        self.children.push(module);
    }

    fn visit_foreign_item_fn(&mut self, function: &'a syn::ForeignItemFn) {
        self.module.items.insert(function.sig.ident.to_string());
        visit::visit_foreign_item_fn(self, function);
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_none() {
            let hands_on = !matches!(item.vis, syn::Visibility::Inherited);
            self.bind(&item.tree, &mut Vec::new(), hands_on);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            self.module.names.extend(segments.first().cloned());
            self.module.paths.extend((segments.len() > 1).then_some(segments));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.read(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_meta_list(&mut self, list: &'a syn::MetaList) {
        self.read(list.tokens.clone());
        visit::visit_meta_list(self, list);
    }
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        for path in paths_in(tokens) {
            self.module.names.extend(path.first().cloned());
            self.module.paths.extend((path.len() > 1).then_some(path));
        }
    }

    fn bind(&mut self, tree: &UseTree, before: &mut Vec<String>, hands_on: bool) {
        let path = |name: &syn::Ident| {
            let own = (name != "self").then(|| name.to_string());
            before.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        match tree {
            UseTree::Path(part) => {
                before.push(part.ident.to_string());
                self.bind(&part.tree, before, hands_on);
                before.pop();
            }
            UseTree::Name(name) => {
                let path = path(&name.ident);
                let bound = path.last().cloned().unwrap_or_default();
                self.enter(bound, path, hands_on);
            }
            UseTree::Rename(renamed) => {
                let path = path(&renamed.ident);
                // Any number of traits may be bound to `_`.
                let bound = match renamed.rename.to_string() {
                    name if name == "_" => path.join("::"),
                    name => name,
                };
                self.enter(bound, path, hands_on);
            }
            UseTree::Glob(_) => self.module.globs.push(before.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.bind(tree, before, hands_on)),
        }
    }

    fn enter(&mut self, name: String, path: Vec<String>, hands_on: bool) {
        if hands_on {
            self.module.handed_on.insert(name.clone());
        }
        self.module.bound.insert(name, path);
    }
}

/// Names and paths among the tokens of a macro's call or an attribute.
fn paths_in(tokens: TokenStream) -> Vec<Vec<String>> {
    let (mut paths, mut path, mut colons) = (Vec::new(), Vec::new(), 0);
    let mut end = |path: &mut Vec<String>| {
        let path = std::mem::take(path);
        if !path.is_empty() {
            paths.push(path);
        }
    };
    let mut inside = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            other => {
                end(&mut path);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    inside.extend(paths_in(group.stream()));
                }
            }
        }
    }
    end(&mut path);
    paths.extend(inside);
    paths
}

/// Tests if a `cfg` leaves an item to tests.
pub fn is_for_tests(attribute: &Attribute) -> bool {
    let is_test = |meta: &syn::MetaList| {
        meta.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    };
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_test)
}

/// The value of a `#[path = "..."]`.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &found.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

macro_rules! of_items {
    ($item:expr, $($kind:ident),+) => {
        match $item {
            $(Item::$kind(item) => (&item.attrs[..], Some(&item.ident)),)+
            Item::Fn(item) => (&item.attrs[..], Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs[..], item.ident.as_ref()),
            Item::Use(item) => (&item.attrs[..], None),
            Item::Impl(item) => (&item.attrs[..], None),
            Item::Mod(item) => (&item.attrs[..], None),
            Item::ForeignMod(item) => (&item.attrs[..], None),
            _ => (&[][..], None),
        }
    };
}

fn parts(item: &Item) -> (&[Attribute], Option<&syn::Ident>) {
    of_items!(item, Const, Enum, ExternCrate, Static, Struct, Trait, TraitAlias, Type, Union)
}

fn attributes(item: &Item) -> &[Attribute] {
    parts(item).0
}

fn name(item: &Item) -> Option<String> {
    parts(item).1.map(ToString::to_string)
}
