//! Graphs: operations with an order.

use std::sync::Arc;

use crate::state::stream::Op;
use crate::status::{Outcome, Status};

/// A graph being made.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: u64,
    pub(crate) op: Op,
    pub(crate) after: Vec<usize>,
    /// The graph in it, once it was requested.
    pub(crate) inside: Option<u64>,
    /// Nodes keep their index; a destroyed one stays as a gap.
    pub(crate) gone: bool,
}

/// A graph ready to launch.
pub(crate) struct Executable {
    /// The graph that it was made of.
    pub(crate) graph: u64,
    pub(crate) ops: Arc<Vec<Op>>,
    /// Node that each operation is of.
    pub(crate) nodes: Vec<u64>,
    pub(crate) flags: u64,
}

impl Executable {
    /// An executable of a graph as the graph is now.
    pub(crate) fn of(handle: u64, graph: &Graph, flags: u64) -> Outcome<Self> {
        let order = graph.order()?;
        let nodes = graph.handles(&order);
        Ok(Self { graph: handle, ops: Arc::new(graph.ordered()?), nodes, flags })
    }

    /// Changes the operation of a node, which must be of the same kind.
    pub(crate) fn set(&mut self, node: u64, op: Op) -> Outcome {
        let index = self.nodes.iter().position(|handle| *handle == node).ok_or(Status::InvalidValue)?;
        let place = Arc::make_mut(&mut self.ops).get_mut(index).ok_or(Status::InvalidValue)?;
        // A copy of nothing is an empty operation.
        let is_nothing = |op: &Op| matches!(op, Op::Empty);
        let is_same = std::mem::discriminant(place) == std::mem::discriminant(&op);
        if !is_same && !is_nothing(place) && !is_nothing(&op) {
            return Err(Status::InvalidValue);
        }
        *place = op;
        Ok(())
    }
}

impl Graph {
    /// Adds a node after others of this graph; returns its index.
    pub(crate) fn add(&mut self, handle: u64, op: Op, after: Vec<usize>) -> usize {
        self.nodes.push(Node { handle, op, after, inside: None, gone: false });
        self.nodes.len() - 1
    }

    /// The handles of nodes.
    pub(crate) fn handles(&self, nodes: &[usize]) -> Vec<u64> {
        nodes.iter().filter_map(|index| self.nodes.get(*index)).map(|node| node.handle).collect()
    }

    pub(crate) fn index(&self, handle: u64) -> Outcome<usize> {
        self.nodes.iter().position(|node| node.handle == handle && !node.gone).ok_or(Status::InvalidValue)
    }

    /// The indices of nodes; one that is not in this graph is an invalid value.
    pub(crate) fn indices(&self, handles: &[u64]) -> Outcome<Vec<usize>> {
        handles.iter().map(|handle| self.index(*handle)).collect()
    }

    /// Tests if it allocates or frees.
    pub(crate) fn has_memory(&self) -> bool {
        self.living().any(|node| matches!(node.op, Op::Alloc(_) | Op::Free(_)))
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.gone)
    }

    pub(crate) fn edges(&self) -> Vec<(u64, u64)> {
        let edge = |node: &Node| {
            node.after.iter().map(|before| (self.nodes[*before].handle, node.handle)).collect::<Vec<_>>()
        };
        self.living().flat_map(edge).collect()
    }

    /// The operations in an order that respects every edge; a circle is an invalid value.
    pub(crate) fn ordered(&self) -> Outcome<Vec<Op>> {
        Ok(self.order()?.into_iter().map(|index| self.nodes[index].op.clone()).collect())
    }

    /// Indices of the nodes in that order.
    fn order(&self) -> Outcome<Vec<usize>> {
        let mut placed: Vec<bool> = self.nodes.iter().map(|node| node.gone).collect();
        let mut order = Vec::new();
        while placed.contains(&false) {
            let next = (0..placed.len()).find(|index| {
                !placed[*index] && self.nodes[*index].after.iter().all(|before| placed[*before])
            });
            let next = next.ok_or(Status::InvalidValue)?;
            placed[next] = true;
            order.push(next);
        }
        Ok(order)
    }
}
