//! What tokio-console shows, read from the real `console-subscriber` through its gRPC interface.
//!
//! The crate refuses to work in builds without `--cfg tokio_unstable`, so this test is empty there:
//! `scripts/console.sh` runs it.
#![cfg(tokio_unstable)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use console_api::async_ops::{AsyncOp, Stats};
use console_api::field::{Name, Value};
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::resources::Resource;
use console_api::resources::resource::kind::Kind;
use console_api::tasks::Task;
use console_api::{Attribute, Field};
use tracing_subscriber::layer::SubscriberExt;
use wakegraph::{Device, FinalizeOptions, Graph, Range, read};

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) {
        item: |i, x| x[i] += 1,
    }
}

/// Everything that the console has been told.
#[derive(Default)]
struct Console {
    resources: HashMap<u64, Resource>,
    resource_attributes: HashMap<u64, HashMap<String, String>>,
    operations: HashMap<u64, AsyncOp>,
    stats: HashMap<u64, Stats>,
    tasks: HashMap<u64, Task>,
}

fn attributes(all: &[Attribute]) -> HashMap<String, String> {
    all.iter().filter_map(|attribute| field(attribute.field.as_ref()?)).collect()
}

fn field(field: &Field) -> Option<(String, String)> {
    let Name::StrName(name) = field.name.clone()? else { return None };
    let value = match field.value.clone()? {
        Value::DebugVal(value) | Value::StrVal(value) => value,
        Value::U64Val(value) => value.to_string(),
        Value::I64Val(value) => value.to_string(),
        Value::BoolVal(value) => value.to_string(),
    };
    Some((name, value))
}

impl Console {
    fn apply(&mut self, update: Update) {
        if let Some(update) = update.resource_update {
            let resources = update.new_resources.into_iter();
            self.resources.extend(resources.map(|resource| (resource.id.unwrap().id, resource)));
            let stats = update.stats_update.iter();
            self.resource_attributes.extend(stats.map(|(id, stats)| (*id, attributes(&stats.attributes))));
        }
        if let Some(update) = update.async_op_update {
            self.operations.extend(update.new_async_ops.into_iter().map(|op| (op.id.unwrap().id, op)));
            self.stats.extend(update.stats_update);
        }
        if let Some(update) = update.task_update {
            self.tasks.extend(update.new_tasks.into_iter().map(|task| (task.id.unwrap().id, task)));
        }
    }

    /// The resource of a type with this attribute.
    fn resource(&self, concrete_type: &str, attribute: (&str, &str)) -> Option<&Resource> {
        self.resources.values().find(|resource| {
            let attributes = self.resource_attributes.get(&resource.id.unwrap().id);
            let value = attributes.and_then(|attributes| attributes.get(attribute.0));
            resource.concrete_type == concrete_type && value.is_some_and(|value| value == attribute.1)
        })
    }

    /// The operations that stand for partitions of submissions.
    fn submitted(&self) -> impl Iterator<Item = u64> + '_ {
        let of_ours = |operation: &&AsyncOp| operation.source == "ExecutableGraph::submit";
        self.operations.values().filter(of_ours).map(|operation| operation.id.unwrap().id)
    }

    /// The operation that stands for a partition, and its attributes.
    fn partition(&self, partition: &str) -> Option<(&AsyncOp, &Stats, HashMap<String, String>)> {
        self.operations.iter().find_map(|(id, operation)| {
            let stats = self.stats.get(id)?;
            let attributes = attributes(&stats.attributes);
            (attributes.get("partition")? == partition).then_some((operation, stats, attributes))
        })
    }

    fn has_state(&self, partition: &str, state: &str, waits_for: &str) -> bool {
        self.partition(partition).is_some_and(|(_, _, attributes)| {
            let value = |name: &str| attributes.get(name).map(String::as_str);
            value("state") == Some(state) && value("waits_for") == Some(waits_for)
        })
    }

    fn task(&self, name: &str) -> Option<&Task> {
        self.tasks
            .values()
            .find(|task| task.fields.iter().filter_map(field).any(|(_, value)| value.contains(name)))
    }
}

#[test]
fn the_console_shows_why_a_partition_is_stuck() {
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let layer = console_subscriber::ConsoleLayer::builder()
        .server_addr(address)
        .publish_interval(Duration::from_millis(20))
        .spawn();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let device = Device::open("host:0").unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        let out = device.host_buffer::<u32>(4).unwrap();
        let (open, gate) = tokio::sync::watch::channel(false);
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        graph.copy(&x, &out);
        let line = line!() + 1;
        let post = graph.host_task((read(&out),), async move |(_out,)| {
            gate.clone().wait_for(|open| *open).await.map(drop)
        });
        let post = post.name("post").id();
        graph.launch(add_one(&x), Range::linear(4)).after([post]);
        let finalized = line!() + 1;
        let exec = graph.finalize_with(FinalizeOptions::new().name("embedder")).unwrap();
        let request = async move { exec.submit().await };
        let request = tokio::task::Builder::new().name("request").spawn(request).unwrap();

        let mut client = loop {
            match InstrumentClient::connect(format!("http://{address}")).await {
                Ok(client) => break client,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let mut updates = client.watch_updates(InstrumentRequest {}).await.unwrap().into_inner();
        let mut console = Console::default();
        let is_stuck = |console: &Console| {
            console.has_state("0", "finished", "")
                && console.has_state("1", "running on the host", "")
                && console.has_state("2", "waiting", "1")
                && console
                    .submitted()
                    .all(|id| console.stats.get(&id).is_some_and(|stats| stats.task_id.is_some()))
                && console.task("post").is_some()
        };
        while !is_stuck(&console) {
            console.apply(updates.message().await.unwrap().unwrap());
        }

        // The resources: a device, its queue, the executable; all of a kind that the console can filter by.
        let host = console.resource("Device", ("selector", "host:0")).unwrap();
        assert_eq!(host.kind.as_ref().unwrap().kind, Some(Kind::Other("wakegraph".into())));
        let queue = console.resource("Queue", ("device", "host:0")).unwrap();
        assert_eq!(queue.parent_resource_id, host.id);
        let executable = console.resource("ExecutableGraph", ("partitions", "3")).unwrap();
        assert_eq!(console.resource("ExecutableGraph", ("name", "embedder")).unwrap().id, executable.id);
        let place = executable.location.as_ref().unwrap();
        assert!(place.file.as_ref().unwrap().ends_with("console.rs"), "{place:?}");
        assert_eq!(place.line, Some(finalized));

        // The operations: each on its queue, awaited by the task of the request.
        let request_task = console.task("request").unwrap().id;
        for (partition, resource, nodes) in
            [("0", queue, "fill"), ("1", executable, "post"), ("2", queue, "add_one")]
        {
            let (operation, stats, attributes) = console.partition(partition).unwrap();
            assert_eq!(operation.resource_id, resource.id, "partition {partition}");
            assert_eq!(operation.source, "ExecutableGraph::submit");
            assert_eq!(stats.task_id, request_task, "partition {partition}");
            assert!(attributes["nodes"].contains(nodes), "{attributes:?}");
        }

        // The host task says where it was added.
        let fields: Vec<String> =
            console.task("post").unwrap().fields.iter().filter_map(field).map(|(_, value)| value).collect();
        assert!(fields.iter().any(|field| field.contains(&format!("console.rs:{line}"))), "{fields:?}");

        open.send(true).unwrap();
        request.await.unwrap().unwrap();
        let is_over = |console: &Console| {
            console.submitted().all(|id| {
                let stats = console.stats.get(&id);
                stats.is_some_and(|stats| stats.dropped_at.is_some())
            })
        };
        while !is_over(&console) {
            console.apply(updates.message().await.unwrap().unwrap());
        }
        assert_eq!(console.submitted().count(), 3);
    });
}
