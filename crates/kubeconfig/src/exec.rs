//! Runs a credential plugin.

// kube's own way to run one has no bounds: it waits forever, on a thread of the runtime, keeps everything that
// the plugin prints, and runs it twice for each client. Here time and output are limited, and the plugin's
// processes end with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use nodegate_program::{os_words, sanitize_short};
use serde::Deserialize;
use serde_json::json;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest run of a plugin. One that asks its cloud needs seconds.
const WITHIN: Duration = Duration::from_secs(20);
/// The longest run of a plugin that may ask a person.
const WITH_PERSON_WITHIN: Duration = Duration::from_mins(5);
/// The maximum number of bytes that a plugin may print, on each of its outputs.
const MAX_OUTPUT: u64 = 1 << 20;
/// The maximum length of its error output in a message, in characters.
const MAX_SAID: usize = 500;
/// The error of a credential without a use.
const EMPTY: &str = "its output has neither a token nor a certificate with its key";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Whether a person can answer the plugin's questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// No, as in a service.
    Absent,
    /// The plugin gets this process' stdin and stderr.
    Shared,
}

/// Runs the user's credential plugin, if there is one, and replaces it by the credentials that it prints. Returns their
/// expiry, if they have one.
///
/// # Errors
/// Fails with a sentence that names the plugin.
pub async fn run_plugin(user: &mut AuthInfo, terminal: Terminal) -> Result<Option<Timestamp>, String> {
    let Some(exec) = user.exec.take() else { return Ok(None) };
    let command = exec.command.as_deref().unwrap_or_default();
    // Boxed: the futures of all clients would have room for it.
    let ran = Box::pin(run(&exec, user, terminal)).await;
    ran.map_err(|error| {
        let hint = exec.install_hint.as_deref().map_or("run it by hand to see more", str::trim);
        format!("exec: credential plugin {command}: {error}; {hint}")
    })
}

async fn run(
    exec: &ExecConfig,
    user: &mut AuthInfo,
    terminal: Terminal,
) -> Result<Option<Timestamp>, BoxError> {
    let (asks, within) = match (&exec.interactive_mode, terminal) {
        (Some(ExecInteractiveMode::Always), Terminal::Absent) => {
            return Err("its interactiveMode is Always, and there is no terminal".into());
        }
        (Some(ExecInteractiveMode::Never), _) | (_, Terminal::Absent) => (false, WITHIN),
        (_, Terminal::Shared) => (true, WITH_PERSON_WITHIN),
    };
    let printed = output(command(exec, asks)?, asks, within).await?;
    let credential = serde_json::from_slice::<Credential>(&printed);
    // What it has printed may be a secret, so no message quotes it.
    let credential = credential.map_err(|_| "its output is not the JSON of an ExecCredential")?;
    if let (Some(wanted), Some(printed)) = (&exec.api_version, &credential.api_version)
        && wanted != printed
    {
        return Err(format!("it is to print apiVersion {wanted}, and prints {printed}").into());
    }
    let status = credential.status.ok_or(EMPTY)?;
    let certificate = status.client_certificate_data.zip(status.client_key_data);
    if status.token.is_none() && certificate.is_none() {
        return Err(EMPTY.into());
    }
    #[allow(clippy::disallowed_methods, reason = "the plugin has the clock of its machine")]
    let now = Timestamp::now();
    if let Some(expiry) = status.expiration_timestamp.filter(|expiry| *expiry <= now) {
        let todo = "log in again, or set the clock";
        return Err(format!("the credential that it gave expired at {expiry}; {todo}").into());
    }
    let token = status.token.map(|token| token.trim().to_owned());
    if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err("its token has a character that no token has, such as a line break".into());
    }
    user.token = token.map(Into::into);
    if let Some((certificate, key)) = certificate {
        user.client_certificate_data = Some(STANDARD.encode(certificate));
        user.client_key_data = Some(STANDARD.encode(format!("{key}\n")).into());
    }
    Ok(status.expiration_timestamp)
}

/// Returns the command with the arguments, variables and information that client-go gives it.
fn command(exec: &ExecConfig, asks: bool) -> Result<Command, BoxError> {
    let mut command = Command::new(exec.command.as_ref().ok_or("it names no program")?);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let Some(name) = variable.get("name") {
            command.env(name, variable.get("value").map_or("", String::as_str));
        }
    }
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let info = json!({
        "apiVersion": exec.api_version, "kind": "ExecCredential",
        "spec": {"interactive": asks, "cluster": cluster},
    });
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    Ok(command)
}

/// The processes of a plugin, which are killed unless it has ended by itself.
#[cfg(unix)]
struct Group(Option<rustix::process::Pid>);

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Returns the output of a program that ends well within the bounds.
async fn output(mut command: Command, asks: bool, within: Duration) -> Result<Vec<u8>, BoxError> {
    command.stdout(Stdio::piped()).kill_on_drop(true);
    if !asks {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        // One that asks must stay in the terminal's own group.
        #[cfg(unix)]
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| not_run(&error))?;
    #[cfg(unix)]
    let mut group = {
        let id = child.id().filter(|_| !asks);
        Group(id.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())))
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let status = async { child.wait().await.map_err(|error| not_run(&error)) };
        tokio::try_join!(read(stdout), read(stderr), status)
    };
    let ended = tokio::time::timeout(within, ended).await;
    let (printed, said, status) =
        ended.map_err(|_| format!("it takes longer than {} s", within.as_secs()))??;
    #[cfg(unix)]
    {
        group.0 = None;
    }
    if status.success() {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = sanitize_short(&lines.join("; "), MAX_SAID);
    let said = if said.is_empty() { ", and printed no error".to_owned() } else { format!(": {said}") };
    Err(format!("it failed ({status}){said}").into())
}

async fn read(output: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, BoxError> {
    let mut printed = Vec::new();
    if let Some(output) = output {
        output.take(MAX_OUTPUT + 1).read_to_end(&mut printed).await.map_err(|error| not_run(&error))?;
    }
    if printed.len() as u64 > MAX_OUTPUT {
        return Err(format!("it prints more than {MAX_OUTPUT} bytes").into());
    }
    Ok(printed)
}

fn not_run(error: &io::Error) -> BoxError {
    if error.kind() == io::ErrorKind::NotFound {
        return "there is no such program; install it, or give its whole path".into();
    }
    format!("can't run it: {}", os_words(error)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn shell(script: &str) -> ExecConfig {
        let exec = json!({
            "command": "sh", "args": ["-c", script], "env": [{"name": "WHO", "value": "me"}],
            "apiVersion": "client.authentication.k8s.io/v1", "provideClusterInfo": false,
        });
        serde_json::from_value(exec).unwrap()
    }

    async fn user(script: &str) -> Result<(AuthInfo, Option<Timestamp>), BoxError> {
        let mut user = AuthInfo::default();
        let expiry = run(&shell(script), &mut user, Terminal::Absent).await?;
        Ok((user, expiry))
    }

    #[tokio::test]
    async fn its_token_or_certificate_becomes_the_users() {
        let token =
            r#"echo "{\"status\":{\"token\":\"$WHO\",\"expirationTimestamp\":\"2030-01-01T00:00:00Z\"}}""#;
        let (with_token, expiry) = user(token).await.unwrap();
        assert_eq!(with_token.token.unwrap().expose_secret(), "me");
        assert_eq!(expiry, Some("2030-01-01T00:00:00Z".parse().unwrap()));
        let certificate = r#"echo '{"status":{"clientCertificateData":"cert","clientKeyData":"key"}}'"#;
        let (with_certificate, expiry) = user(certificate).await.unwrap();
        assert_eq!(with_certificate.client_certificate_data.as_deref(), Some("Y2VydA=="));
        assert_eq!(with_certificate.client_key_data.unwrap().expose_secret(), "a2V5Cg==");
        assert_eq!(expiry, None);
        let info = r#"case $KUBERNETES_EXEC_INFO in *client.authentication.k8s.io/v1*) echo '{"status":{"token":"a"}}';; esac"#;
        user(info).await.unwrap();
    }

    #[tokio::test]
    async fn one_that_fails_is_explained() {
        for (script, said) in [
            ("echo no >&2; echo >&2; echo login >&2; exit 3", "it failed (exit status: 3): no; login"),
            ("echo '{\"status\":{}}'", "its output has neither a token nor a certificate with its key"),
            (
                "echo '{\"apiVersion\":\"v2\",\"status\":{}}'",
                "it is to print apiVersion client.authentication.k8s.io/v1, and prints v2",
            ),
            ("yes", "it prints more than 1048576 bytes"),
            ("yes >&2", "it prints more than 1048576 bytes"),
        ] {
            assert_eq!(user(script).await.unwrap_err().to_string(), said, "{script}");
        }
    }

    #[tokio::test]
    async fn one_that_hangs_ends_with_all_its_processes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        let late = output(command(&shell(&script), false).unwrap(), false, Duration::from_secs(1)).await;
        assert_eq!(late.unwrap_err().to_string(), "it takes longer than 1 s");
        let child = std::fs::read_to_string(&file).unwrap();
        let state = format!("/proc/{}/stat", child.trim());
        // It may stay a zombie of its new parent.
        let lives = || std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while lives() {
            assert!(tokio::time::Instant::now() < deadline, "the plugin's child goes on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
