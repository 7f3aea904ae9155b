// What the API answers. Only what the page reads is named; everything else passes through whole.

export type EndpointState = 'healthy' | 'critical' | 'unknown' | 'disabled' | 'draining'

export interface LiveEndpoint {
  name: string
  address: string
  port: number
  state: EndpointState
  reason: string
  weight: number
  open_requests: number
  open_connections?: number
  sessions: number
  drain_seconds_left: number | null
}

export interface LivePool {
  id: string
  name: string
  state: string
  reason: string
  endpoints: LiveEndpoint[]
}

export interface LiveBalancer {
  id: string
  name: string
  state: string
  pools: string[]
}

/** What a waiting room does, from moment to moment. */
export interface RoomFigures {
  seats: number
  waiting: number
  admitted_last_minute: number
  /** How long the last in line will wait: one in ten less than low, one in ten more than high. */
  wait_seconds: { low: number; mid: number; high: number } | null
  /** Since the process began: let in, of them from the line, how long these waited together. */
  admitted: number
  entered: number
  waited_seconds: number
  abandoned: number
  trouble: string | null
}

export interface Room extends RoomFigures {
  id: string
  name: string
  status: string
}

/** The browsers of one region. */
export interface BrowserPool {
  region: string
  backend: string
  insecure_single_tenant: boolean
  ready: number
  in_use: number
  starting: number
  /** How many are meant to be ready: what those in use leave. */
  wanted: number
  max: number
  host: { state: 'starting' | 'running' | 'missing'; reason: string | null; warnings: string[] }
  /** Why nobody gets a browser here. */
  trouble: string | null
  queue: { waiting: number; oldest_seconds: number }
}

/** A browser that somebody has. */
export interface BrowserSession {
  id: string
  region: string
  account: Named
  age_seconds: number
  connections: number
  idle_seconds_left: number
}

/** What the stream says of browsers each second. */
export interface Standing {
  pools: BrowserPool[]
  sessions: BrowserSession[]
}

export interface NodeState {
  node: string
  version: string
  uptime_seconds: number
  revision: number
  load_balancers: LiveBalancer[]
  pools: LivePool[]
  rooms: Room[]
  browsers: BrowserPool[]
}

export interface Rate {
  requests?: number
  errors_5xx?: number
  p50_ms?: number | null
  p99_ms?: number | null
  in_flight?: number
}

export interface Figures extends Rate {
  time: number
  load_balancers: Record<string, Rate>
  pools: Record<string, Rate & { endpoints?: Record<string, Rate> }>
  rooms: Record<string, RoomFigures>
}

export interface Named {
  id: string
  name: string
}

export interface Monitor {
  id: string
  description: string
  type: string
  method: string
  path?: string
  port: number | null
  interval: number
  timeout: number
  retries: number
  expected_codes?: string
  expected_body?: string
  consecutive_up: number
  consecutive_down: number
  follow_redirects?: boolean
  allow_insecure?: boolean
  header?: Record<string, string[]> | null
}

/** A monitor in a group, and what its word counts. */
export interface Member {
  monitor_id: string
  enabled: boolean
  monitoring_only: boolean
  must_be_healthy: boolean
}

export interface MonitorGroup {
  id: string
  description: string
  members: Member[]
}

export interface Origin {
  name: string
  address: string
  enabled: boolean
  weight: number
  port?: number | null
  header?: { Host?: string[] } | null
  [more: string]: unknown
}

export interface Pool {
  id: string
  name: string
  description: string
  enabled: boolean
  origins: Origin[]
  origin_steering?: { policy: string } | null
  minimum_origins: number
  monitor?: string | null
  monitor_group?: string | null
}

export interface Balancer {
  id: string
  name: string
  description: string
  enabled: boolean
  proxied: boolean
  default_pools: string[]
  fallback_pool: string
  steering_policy: string
  random_steering?: { default_weight?: number; pool_weights?: Record<string, number> } | null
  session_affinity: string
  session_affinity_ttl?: number
  session_affinity_attributes?: { drain_duration?: number; [more: string]: unknown } | null
  rules?: unknown[]
  pool_sets?: unknown[]
  zone_name?: string
}

export interface Step {
  step: string
  text: string
}

export interface Candidate {
  name: string
  usable: boolean
  state: string
  reason: string
  weight: number
  probability: number
  open?: number
  rtt_ms?: number
  distance_km?: number
  shed?: number
}

export interface Explanation {
  outcome: 'forward' | 'respond' | 'wait' | 'reject' | 'refuse' | 'bypass'
  status: number | null
  reason?: string
  load_balancer: string | null
  pool: string | null
  fallback: boolean
  endpoint: { name: string; address: string; port: number } | null
  retry?: { name: string; address: string; port: number; pool: string } | null
  session: { kind: string; kept: boolean; reason: string } | null
  pools: Candidate[]
  endpoints: Candidate[]
  steps: Step[]
  seed: number | string
  approximate?: boolean
}

/** A waiting room as it is kept. */
export interface WaitingRoom {
  id: string
  name: string
  description: string
  host: string
  path: string
  additional_routes?: { host: string; path: string }[]
  total_active_users: number
  new_users_per_minute: number
  session_duration: number
  disable_session_renewal: boolean
  queueing_method: string
  queue_all: boolean
  suspended: boolean
  queueing_status_code: number
  json_response_enabled: boolean
  custom_page_html: string
  default_template_language: string
  usher?: { session_duration_seconds?: number; [more: string]: unknown }
  /** Of what the API keeps; the file's own has none. */
  created_on?: string
}

/** Who passes a waiting room without a seat. */
export interface RoomRule {
  id: string
  expression: string
  description: string
  enabled: boolean
}
