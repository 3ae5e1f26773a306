//! `lazuli instances add-ssh-key`, as a person runs it against the cluster: with a plan, and with a question where there
//! is a terminal.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    super::{
        azure::machine_id,
        cloud::{NODES, text},
    },
    Cluster, chart,
};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILjMLhLoHKsdYSfI/EQjr5+ukZSFIjA+IVlAJ7prxufP person";

/// Where the command runs.
#[derive(Clone, Copy)]
enum Console {
    /// A terminal, at which a person writes this line.
    Terminal(&'static str),
    /// A pipe.
    Pipe,
}

impl Cluster {
    /// Runs the command for all Nodes. Gives whether it succeeded, and all that it printed.
    fn add_ssh_key(&self, console: Console, options: &str) -> (bool, String) {
        let at = |name: &str| text(&self.folder.path().join(name));
        fs::write(at("key.pub"), KEY).unwrap();
        fs::write(at("person.json"), chart::cloud_config(self.folder.path(), Value::Null)).unwrap();
        let line = format!(
            "{} instances add-ssh-key --user person --key {} --all --cloud-config {} --kubeconfig {} {options}",
            env!("CARGO_BIN_EXE_lazuli"),
            at("key.pub"),
            at("person.json"),
            self.kubernetes.admin_kubeconfig(),
        );
        let mut command = match console {
            Console::Terminal(_) => {
                let mut script = Command::new("script");
                script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
                script
            }
            Console::Pipe => {
                let mut words = line.split_whitespace();
                let mut command = Command::new(words.next().unwrap());
                command.args(words);
                command
            }
        };
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.env("SSL_CERT_FILE", at("tls/ca.pem")).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        if let Console::Terminal(answer) = console {
            // Into the buffer of the terminal, also before the question.
            input.write_all(answer.as_bytes()).unwrap();
        }
        drop(input);
        let output = child.wait_with_output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(printed).unwrap())
    }

    /// The extensions of the Nodes' machines, without what every write changes.
    async fn extensions(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for node in NODES {
            let id = format!("{}/extensions/lazuli-vm-access", machine_id(node));
            found.extend(self.azure.resource(&id).await.map(|document| document["properties"].clone()));
        }
        found
    }

    /// A person adds a key to the machines of all Nodes.
    pub(super) async fn a_person_adds_an_ssh_key(&self) {
        let refused = [
            (Console::Pipe, "", "there is no terminal to ask at"),
            (Console::Terminal("n\n"), "", "the answer was not yes"),
        ];
        for (console, options, why) in refused {
            let (succeeded, printed) = self.add_ssh_key(console, options);
            assert!(!succeeded && printed.contains(why), "{printed}");
        }
        let (succeeded, plan) = self.add_ssh_key(Console::Pipe, "--dry-run");
        assert!(succeeded && plan.contains("for user person, who may become root by sudo"), "{plan}");
        assert!(NODES.iter().all(|node| plan.contains(&format!("  {node}  "))), "{plan}");
        assert_eq!(self.extensions().await, Vec::<Value>::new());

        let (succeeded, printed) = self.add_ssh_key(Console::Terminal("y\n"), "");
        assert!(succeeded && printed.contains("Change 2 machines? [y/N]"), "{printed}");
        assert!(NODES.iter().all(|node| printed.contains(&format!("{node}: has the key"))), "{printed}");
        let extensions = self.extensions().await;
        assert!(extensions.iter().all(|one| one["type"] == "VMAccessForLinux"), "{extensions:#?}");
        assert_eq!(extensions.len(), 2);

        // Azure runs an extension again only when its settings or its tag are others.
        let (succeeded, printed) = self.add_ssh_key(Console::Pipe, "--yes");
        assert!(succeeded, "{printed}");
        assert_eq!(self.extensions().await, extensions);
    }
}
